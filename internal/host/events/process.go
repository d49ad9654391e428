package events

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Process is a process that changed the host. It may have ended since.
type Process struct {
	PID  int    // 0 if it is not known
	Name string // "" if it is not known
	Unit string // of systemd; "" if it is not known, or the process has none
}

// String describes the process: "nft (PID 4711, from nftables.service)".
func (p Process) String() string {
	switch {
	case p.PID == 0:
		return "an unknown process"
	case p.Unit == "":
		return fmt.Sprintf("%s (PID %d)", p.Name, p.PID)
	}
	return fmt.Sprintf("%s (PID %d, from %s)", p.Name, p.PID, p.Unit)
}

// process describes a process by one of its threads, with a name from the kernel.
func process(thread int, name string) Process {
	if thread == 0 {
		return Process{}
	}
	pid := thread
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	for line := range strings.Lines(string(status)) {
		if number, ok := strings.CutPrefix(line, "Tgid:"); ok {
			if group, err := strconv.Atoi(strings.TrimSpace(number)); err == nil {
				pid = group
			}
		}
	}
	cgroup, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)) // the process may have ended
	return Process{PID: pid, Name: name, Unit: unitOf(string(cgroup))}
}

// own reports whether a thread belongs to this process.
func own(thread int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread))
	return err == nil
}

// processOfPort describes the process with a socket of rtnetlink. The kernel gives the first socket
// of a process its process ID as port; other sockets get numbers of no process.
func processOfPort(port int) Process {
	if port <= 0 {
		return Process{}
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", port))
	if err != nil {
		return Process{}
	}
	return process(port, strings.TrimSpace(string(name)))
}

// unitOf returns the innermost unit in the text of /proc/PID/cgroup (cgroups(7)), but no slice.
func unitOf(cgroup string) string {
	for line := range strings.Lines(cgroup) {
		number, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		if !ok || number != "0" && controllers != "name=systemd" {
			continue
		}
		unit := ""
		for part := range strings.SplitSeq(path, "/") {
			if strings.HasSuffix(part, ".service") || strings.HasSuffix(part, ".scope") {
				unit = part
			}
		}
		if unit != "" {
			return unit
		}
	}
	return ""
}
