package testnet

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Main runs the tests of a package and fails the run if they leak a file descriptor, a thread in
// another network namespace, or a goroutine. Call it from TestMain.
func Main(m *testing.M) { mainWithin(m, Patience) }

// mainWithin is like Main with a time limit: resources still in use after patience count as leaked.
func mainWithin(m *testing.M, patience time.Duration) {
	before := resources()
	code := m.Run()
	if code != 0 {
		patience = 0 // the run fails anyway
	}
	err := tryWithin(patience, func() error { // some resources are released in the background
		if leaked := leaks(before); len(leaked) > 0 {
			return errors.New(strings.Join(leaked, "\n"))
		}
		return nil
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "left by the tests:\n%v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// AtOnce runs n tests at the same time unless -parallel says otherwise. A TestMain calls it in a
// package with tests that mostly wait.
func AtOnce(n int) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := flag.Set(f.Name, strconv.Itoa(n)); err != nil {
			panic(err)
		}
	}
}

// leaks describes the resources that exist now but not in before.
func leaks(before []string) []string {
	after := resources()
	for _, r := range before {
		if i := slices.Index(after, r); i >= 0 {
			after = slices.Delete(after, i, i+1)
		}
	}
	return after
}

func resources() []string {
	var all []string
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil || strings.HasPrefix(target, "anon_inode:[event") { // owned by the Go runtime
			continue
		}
		all = append(all, "descriptor of "+target)
	}
	home, _ := os.Readlink("/proc/self/ns/net")
	threads, _ := filepath.Glob("/proc/self/task/*/ns/net")
	for _, thread := range threads {
		if ns, err := os.Readlink(thread); err == nil && ns != home {
			all = append(all, "thread in "+ns)
		}
	}
	buf := make([]byte, 1<<20)
	stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	for _, stack := range stacks[1:] { // without the calling goroutine
		_, frames, _ := strings.Cut(stack, "\n")     // the first line has its number and state
		if strings.HasPrefix(frames, "os/signal.") { // started by the fuzzing engine
			continue
		}
		all = append(all, "goroutine\n"+strings.TrimSpace(frames))
	}
	return all
}
