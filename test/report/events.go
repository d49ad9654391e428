package main

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is a line of go test -json (go doc test2json). A failed build has ImportPath instead of
// Package.
type event struct {
	Action, Package, ImportPath, Test, Output string
}

// name identifies a test, or a package if test is empty.
type name struct{ pkg, test string }

func (n name) String() string {
	pkg := strings.TrimPrefix(n.pkg, "github.com/tenon-cni/tenon/")
	return strings.TrimSpace(pkg + " " + n.test)
}

// history is what happened to a test in all its runs.
type history struct {
	passed, failed, skipped int
	inner                   bool     // a subtest has failed, which has the reason
	output                  []string // of the current run
	failure                 []string // output of the first failed run
}

// results are the findings in the events of one run of gotestsum, or of several.
type results struct {
	failures []failure
	flaky    []flaky
	skipped  []skipped
	long     int           // tests that short mode leaves out
	deferred []name        // tests for which this kernel lacks a feature
	passed   map[name]bool // tests that passed in any run
}

// reader collects the histories of tests.
type reader struct {
	tests  map[name]*history
	broken map[string]bool // packages with a failed test in the current run
	build  map[string][]string
	results
}

func read(r io.Reader) (results, error) {
	read := reader{tests: map[name]*history{}, broken: map[string]bool{}, build: map[string][]string{},
		results: results{passed: map[name]bool{}}}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return read.conclude(), nil
		}
		if err != nil {
			return results{}, err
		}
		var e event
		if json.Unmarshal(line, &e) == nil { // other lines come from the go command
			read.add(e)
		}
	}
}

func (r *reader) add(e event) {
	if e.ImportPath != "" {
		r.build[e.ImportPath] = append(r.build[e.ImportPath], e.Output)
		if e.Action == "build-fail" {
			r.failures = append(r.failures, failure{name{pkg: e.ImportPath}, r.build[e.ImportPath]})
		}
		return
	}
	n := name{e.Package, e.Test}
	h := r.tests[n]
	if h == nil {
		h = &history{}
		r.tests[n] = h
	}
	switch e.Action {
	case "start":
		r.broken[e.Package] = false
		h.output = nil
	case "run":
		h.output = nil
	case "output":
		h.output = append(h.output, e.Output)
	case "pass":
		h.passed++
	case "skip":
		h.skipped++
	case "fail":
		r.fail(n, h)
	}
}

func (r *reader) fail(n name, h *history) {
	if h.failed++; h.failed == 1 {
		h.failure = h.output
	}
	if n.test != "" {
		r.broken[n.pkg] = true
		if i := strings.LastIndexByte(n.test, '/'); i >= 0 {
			if outer := r.tests[name{n.pkg, n.test[:i]}]; outer != nil {
				outer.inner = true
			}
		}
		return
	}
	if built := !strings.Contains(strings.Join(h.output, ""), "[build failed]"); built && !r.broken[n.pkg] {
		r.failures = append(r.failures, failure{n, r.unfinished(n.pkg, h.output)})
	}
}

// unfinished returns the output of a package that failed without a failed test, and then the output
// of the test that ran at the end: a panic or a timeout prints its goroutines there.
func (r *reader) unfinished(pkg string, output []string) []string {
	for _, n := range r.sorted() {
		if h := r.tests[n]; n.pkg == pkg && n.test != "" && h.passed+h.failed+h.skipped == 0 {
			output = append(output, "not finished: "+n.test+"\n")
			output = append(output, h.output...)
		}
	}
	return output
}

func (r *reader) sorted() []name {
	return slices.SortedFunc(maps.Keys(r.tests), func(a, b name) int {
		return strings.Compare(a.pkg+"\x00"+a.test, b.pkg+"\x00"+b.test)
	})
}

func (r *reader) conclude() results {
	for _, n := range r.sorted() {
		h := r.tests[n]
		switch {
		case h.passed > 0 && h.failed == 0:
			r.passed[n] = true
		case n.test == "":
		case h.failed > 0 && h.inner: // its subtest is listed
		case h.failed > 0 && h.passed == 0:
			r.failures = append(r.failures, failure{n, h.failure})
		case h.failed > 0:
			r.flaky = append(r.flaky, flaky{n, h.failed, h.failed + h.passed, h.failure})
		case h.skipped > 0 && h.passed == 0:
			r.skip(n, h.output)
		}
	}
	return r.results
}

// These texts begin the reasons of tests that [testnet.Long] and [testnet.Require] skip.
const (
	long     = "left out by -short"
	deferred = "deferred to vm: "
)

func (r *reader) skip(n name, output []string) {
	reason := ""
	for _, line := range output {
		if at := logged.FindStringSubmatch(line); at != nil {
			reason = strings.TrimSpace(at[1])
		}
	}
	switch {
	case strings.HasPrefix(reason, long):
		r.long++
	case strings.HasPrefix(reason, deferred):
		r.deferred = append(r.deferred, n)
	default:
		r.skipped = append(r.skipped, skipped{n, reason})
	}
}
