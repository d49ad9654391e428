package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// events builds the events of a run from lines "ACTION PACKAGE TEST OUTPUT", where - is empty and ~ a blank.
func events(t *testing.T, lines string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gate.json")
	var text strings.Builder
	for line := range strings.Lines(lines) {
		part := strings.SplitN(strings.TrimSpace(line), " ", 4)
		for len(part) < 4 {
			part = append(part, "")
		}
		e := event{Action: part[0], Package: part[1], Test: strings.TrimPrefix(part[2], "-")}
		if part[3] != "" {
			e.Output = strings.ReplaceAll(part[3], "~", " ") + "\n"
		}
		if strings.HasPrefix(e.Action, "build") {
			e.Package, e.ImportPath = "", e.Package
		}
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(b, '\n'))
	}
	text.WriteString("go: downloading example.org/a v1.0.0\n")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestReport(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, events string
		ok           bool
		want         string
	}{
		{
			"all tests pass",
			"start a -\nrun a TestA\npass a TestA\npass a -", true, "",
		},
		{
			"a test that never passes, with its assertion before the log",
			`start a -
			run a TestA
			output a TestA ~~~~a_test.go:9:~time=12:00~level=INFO~msg=hello
			output a TestA ~~~~a_test.go:5:~got~1
			fail a TestA
			fail a -
			start a -
			run a TestA
			fail a TestA
			fail a -`, false,
			"--- FAIL: a TestA (all output: FILE)\n    a_test.go:5: got 1\n" +
				"    a_test.go:9: time=12:00 level=INFO msg=hello\n",
		},
		{
			"a subtest that passes at the second attempt",
			`start a -
			run a TestA
			run a TestA/b
			output a TestA/b ~~~~a_test.go:5:~got~1
			fail a TestA/b
			fail a TestA
			fail a -
			start a -
			run a TestA
			run a TestA/b
			pass a TestA/b
			pass a TestA
			pass a -`, true,
			"flaky: a TestA/b (1 of 2)\n    a_test.go:5: got 1\n",
		},
		{
			"a leak, although gotestsum finds nothing to repeat and so succeeds",
			`start a -
			run a TestA
			pass a TestA
			output a - left~by~the~tests:
			fail a -
			start a -
			pass a -`, false,
			"--- FAIL: a (all output: FILE)\nleft by the tests:\n",
		},
		{
			"a timeout",
			`start a -
			run a TestA
			output a TestA panic:~test~timed~out
			output a - FAIL
			fail a -`, false,
			"--- FAIL: a (all output: FILE)\nFAIL\nnot finished: TestA\npanic: test timed out\n",
		},
		{
			"a failed build",
			`build-output a - a.go:3:~undefined
			build-fail a -
			start a -
			output a - FAIL~a~[build~failed]
			fail a -`, false,
			"--- FAIL: a (all output: FILE)\na.go:3: undefined\n",
		},
		{
			"skipped tests",
			`start a -
			run a TestA
			output a TestA ~~~~a_test.go:5:~skipped:~needs~root
			skip a TestA
			run a TestB
			output a TestB ~~~~a_test.go:5:~left~out~by~-short
			skip a TestB
			run a TestC
			output a TestC ~~~~a_test.go:5:~deferred~to~vm:~no~vlan
			skip a TestC
			pass a -`, true,
			"skipped: a TestA (skipped: needs root)\n" +
				"left to make test-all: 1 long tests, and 1 tests of features that this kernel lacks\n",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			file := events(t, row.events)
			var out strings.Builder
			ok, err := run(&out, []string{file})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.ReplaceAll(out.String(), file, "FILE"); ok != row.ok || got != row.want {
				t.Errorf("ok %t, want %t; output:\n%s\nwant:\n%s", ok, row.ok, got, row.want)
			}
		})
	}
}

// TestLongFailure: a failure prints 60 lines and names the file with all of them.
func TestLongFailure(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	failure{name{"a", "TestA"}, []string{strings.Repeat("line\n", 100)}}.print(&out, "gate.json")
	if lines := strings.Count(out.String(), "line\n"); lines != most {
		t.Errorf("%d lines", lines)
	}
	if !strings.Contains(out.String(), "gate.json") || !strings.HasSuffix(out.String(), "and 40 more lines\n") {
		t.Error(out.String())
	}
}
