package cell

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// grace is the time after a call in which its other processes may end. It is long for a slow host; a
// process that stays is stopped or waits for something.
const grace = 2 * time.Second

// processIDs returns the processes of the cell.
func processIDs() map[int]bool {
	names, _ := filepath.Glob("/proc/[0-9]*") // only a bad pattern is an error
	all := map[int]bool{}
	for _, n := range names {
		if pid, err := strconv.Atoi(filepath.Base(n)); err == nil {
			all[pid] = true
		}
	}
	return all
}

// process is a line of /proc/PID/stat.
type process struct {
	name    string
	alive   bool
	session int
}

func readProcess(pid int) (p process, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, false
	}
	_, rest, _ := strings.Cut(string(b), "(")
	end := strings.LastIndex(rest, ") ")
	if end < 0 {
		return p, false
	}
	p.name = rest[:end]
	fields := strings.Fields(rest[end+2:]) // state, parent, group, session
	if len(fields) < 4 {
		return p, false
	}
	p.alive = fields[0] != "Z" && fields[0] != "X"
	p.session, err = strconv.Atoi(fields[3])
	return p, err == nil
}

// sessions returns the sessions of processes. Daemons of the scenario have their own, which new
// processes of theirs share.
func sessions(pids map[int]bool) map[int]bool {
	all := map[int]bool{}
	for pid := range pids {
		if p, ok := readProcess(pid); ok && pid != 1 {
			all[p.session] = true
		}
	}
	return all
}

// others returns the names of the running processes in new sessions by process ID. It reaps ended ones.
func others(known map[int]bool) map[int]string {
	found := map[int]string{}
	for pid := range processIDs() {
		p, ok := readProcess(pid)
		switch {
		case !ok || pid == 1 || known[p.session]:
		case p.alive:
			found[pid] = p.name
		default:
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // if it has become a child of this one
		}
	}
	return found
}

// survivors returns the names of processes in other sessions than the known ones that do not end.
func survivors(known map[int]bool) (names []string) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(grace); time.Now().Before(end); <-tick.C {
		if len(others(known)) == 0 {
			return nil
		}
	}
	return slices.Sorted(maps.Values(others(known)))
}

// kill ends the processes in other sessions than the known ones.
func kill(known map[int]bool) {
	for left := others(known); len(left) > 0; left = others(known) {
		for pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		<-time.After(time.Millisecond)
	}
}
