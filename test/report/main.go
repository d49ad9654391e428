// Command report reads files with the events of go test -json, one file for each run of gotestsum,
// which runs a failed test up to two more times. It prints every failure with its first assertion
// first, every test that failed and then passed, and every skipped test with the reason. It exits
// with status 1 if a test never passed, or if a package failed without a failed test, which a
// repeated test cannot prove wrong: after a leak, a timeout or a failed build.
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
)

func main() {
	ok, err := run(os.Stdout, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(w io.Writer, files []string) (ok bool, err error) {
	ok = true
	all := results{passed: map[name]bool{}}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return false, err
		}
		found, err := read(f)
		f.Close()
		if err != nil {
			return false, fmt.Errorf("%s: %w", file, err)
		}
		for _, failure := range found.failures {
			ok = false
			failure.print(w, file)
		}
		all.flaky = append(all.flaky, found.flaky...)
		all.skipped = append(all.skipped, found.skipped...)
		all.long += found.long
		all.deferred = append(all.deferred, found.deferred...)
		maps.Copy(all.passed, found.passed)
	}
	all.print(w)
	return ok, nil
}
