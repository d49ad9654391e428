package cell

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/internal/judge/script"
)

// recorded returns the calls that recorders wrote, in the order of their starts, and removes them.
func recorded() (list []script.Recorded, err error) {
	names, err := filepath.Glob(script.Calls + "/*.name")
	if err != nil {
		return nil, err
	}
	number := func(path string) int {
		n, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".name"))
		return n
	}
	slices.SortFunc(names, func(a, b string) int { return number(a) - number(b) })
	for _, name := range names {
		list = append(list, readCall(strings.TrimSuffix(name, ".name")))
	}
	files, err := filepath.Glob(script.Calls + "/*")
	for _, f := range files {
		if err := os.RemoveAll(f); err != nil {
			return nil, err
		}
	}
	return list, err
}

// readCall reads the files of one call. A recorder that was killed has not written all of them.
func readCall(call string) script.Recorded {
	read := func(kind string) []byte { return readSome(call + "." + kind) }
	line := func(kind string) string { return string(bytes.TrimSuffix(read(kind), []byte("\n"))) }
	r := script.Recorded{Plugin: line("name"), Stdin: read("stdin"), Status: -1}
	if env := strings.TrimSuffix(string(read("env")), "\x00"); env != "" {
		r.Env = strings.Split(env, "\x00")
	}
	if n, err := strconv.Atoi(line("status")); err == nil {
		r.Status = n
	}
	return r
}

// readSome returns the first bytes of a regular file, nothing of another one: to open a FIFO blocks.
func readSome(path string) []byte {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, limit))
	return b
}
