package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

type failure struct {
	name
	output []string
}

type flaky struct {
	name
	failed, runs int
	output       []string
}

type skipped struct {
	name
	reason string
}

// most is the number of lines that a failure prints; the file has all.
const most = 60

// logged matches the first line of a message that a test logged.
var logged = regexp.MustCompile(`^ +[^ ]+\.go:[0-9]+: (.*)`)

// record matches a line that a program under test logged with log/slog.
var record = regexp.MustCompile(`\btime=[^ ]+ level=[A-Z]+ `)

func (f failure) print(w io.Writer, file string) {
	fmt.Fprintf(w, "--- FAIL: %v (all output: %s)\n", f.name, file)
	lines := messagesFirst(f.output)
	for _, line := range lines[:min(len(lines), most)] {
		fmt.Fprintln(w, line)
	}
	if n := len(lines) - most; n > 0 {
		fmt.Fprintf(w, "    and %d more lines\n", n)
	}
}

// messagesFirst returns the lines of the output of a test: first the messages without the log
// of a program, because they have the assertion that failed.
func messagesFirst(output []string) []string {
	var messages, logs []string
	ofProgram := false
	for _, line := range strings.Split(strings.Join(output, ""), "\n") {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "=== ") {
			continue
		}
		switch {
		case record.MatchString(line):
			ofProgram = true
		case logged.MatchString(line):
			ofProgram = false
		}
		if ofProgram {
			logs = append(logs, line)
		} else {
			messages = append(messages, line)
		}
	}
	return slices.Concat(messages, logs)
}

func (r results) print(w io.Writer) {
	if len(r.skipped) > 0 {
		var all []string
		for _, s := range r.skipped {
			all = append(all, fmt.Sprintf("%v (%s)", s.name, s.reason))
		}
		fmt.Fprintln(w, "skipped:", strings.Join(all, "; "))
	}
	waiting := slices.DeleteFunc(r.deferred, func(n name) bool { return r.passed[n] })
	if r.long > 0 || len(waiting) > 0 {
		fmt.Fprintf(w, "left to make test-all: %d long tests, and %d tests of features that this kernel lacks\n",
			r.long, len(waiting))
	}
	for _, f := range r.flaky {
		fmt.Fprintf(w, "flaky: %v (%d of %d)\n", f.name, f.failed, f.runs)
		lines := messagesFirst(f.output)
		for _, line := range lines[:min(len(lines), 5)] {
			fmt.Fprintln(w, line)
		}
	}
}
