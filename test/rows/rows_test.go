package main

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/conformance"
)

// These tests assemble identifiers from parts, so that no row of the catalogue counts as tested by
// them.
const first, second, third = "DLG" + "-01", "DLG" + "-02", "RT-GC" + "-08"

func catalogue() []conformance.Row {
	return []conformance.Row{{ID: first, Title: "one"}, {ID: second, Title: "two"}, {ID: third, Title: "three"}}
}

func found(t *testing.T, name, content string) string {
	t.Helper()
	mentions, err := scan(fstest.MapFS{name: {Data: []byte(content)}}, catalogue())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, m := range mentions {
		lines = append(lines, m.id+" "+m.String())
	}
	return strings.Join(lines, "\n")
}

func TestScan(t *testing.T) {
	t.Parallel()
	source := "package p\n\nimport (\n\t\"testing\"\n)\n\n// " + first + ": at the test.\nfunc TestA(t *testing.T) {\n\t_ = \"" + second + ", X-" + third +
		"\" // and " + third + "\n}\n\n// table: " + second + "\nvar table = `\n" + first + "`\n"
	want := strings.NewReplacer("1!", first, "2!", second, "3!", third).Replace(
		"1! p_test.go:7 TestA\n3! p_test.go:9 TestA\n2! p_test.go:12 table\n2! p_test.go:9 TestA\n1! p_test.go:14 table")
	for name, row := range map[string]struct{ file, content, want string }{
		"comments and strings of a test":    {"p_test.go", source, want},
		"a suite imports testing":           {"p.go", source, strings.ReplaceAll(want, "p_test.go", "p.go")},
		"a product file proves nothing":     {"p.go", strings.Replace(source, "\t\"testing\"\n", "", 1), ""},
		"a script":                          {"test/script/testdata/a.txtar", "# x\n# " + third + "\n", third + " test/script/testdata/a.txtar:2"},
		"other data are no tests":           {"p/testdata/a.txtar", third, ""},
		"part of a longer word is none":     {"p_test.go", "package p\n\n// A" + first + " " + first + "99 " + first + "a\n", ""},
		"several next to each other":        {"a_test.go", "package p // " + first + "/" + second, first + " a_test.go:1\n" + second + " a_test.go:1"},
		"outside the catalogue":             {"a_test.go", "package p // DLG" + "-77", "DLG" + "-77 a_test.go:1"},
		"an identifier of another document": {"a_test.go", "package p // CVE-2025-67499", ""},
	} {
		if diff := cmp.Diff(row.want, found(t, row.file, row.content)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	at := func(id string) mention { return mention{id: id, file: "a_test.go", test: "TestA", line: 3} }
	for name, row := range map[string]struct {
		reasons  map[string]string
		mentions []mention
		verbose  bool
		ok       bool
		want     string
	}{
		"all proven or reasoned": {
			map[string]string{first: "cannot fail"}, []mention{at(second), at(third)}, false, true,
			"3 rows: 2 with a test, 1 with a reason, 0 with neither\n",
		},
		"verbose": {
			map[string]string{first: "cannot fail"}, []mention{at(second), at(third)}, true, true,
			first + " one\n\tno test: cannot fail\n" + second + " two\n\ta_test.go:3 TestA\n" + third + " three\n\ta_test.go:3 TestA\n" +
				"3 rows: 2 with a test, 1 with a reason, 0 with neither\n",
		},
		"missing": {
			map[string]string{first: "cannot fail"}, []mention{at(second)}, false, false,
			third + " has neither test nor reason: three ()\n3 rows: 1 with a test, 1 with a reason, 1 with neither\n",
		},
		"superfluous reason": {
			map[string]string{first: "cannot fail"}, []mention{at(first), at(second), at(third)}, false, true,
			first + " has a test and needs no reason any more: a_test.go:3 TestA\n3 rows: 3 with a test, 0 with a reason, 0 with neither\n",
		},
		"in no catalogue": {
			map[string]string{"Y-1": "?"}, []mention{at(first), at(second), at(third), at("X-1")}, false, false,
			"X-1 is in no catalogue: a_test.go:3 TestA\nY-1 is in no catalogue: untested.tsv\n" +
				"3 rows: 3 with a test, 0 with a reason, 0 with neither\n",
		},
	} {
		var b strings.Builder
		if ok := (report{catalogue(), row.reasons, row.mentions}).print(&b, row.verbose); ok != row.ok {
			t.Errorf("%s: ok = %t", name, ok)
		}
		if diff := cmp.Diff(row.want, b.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	if _, err := parseReasons(untested); err != nil {
		t.Error(err)
	}
	for _, table := range []string{"no tab\n", "A\tx\nA\ty\n"} {
		if _, err := parseReasons(table); err == nil {
			t.Errorf("%q was accepted", table)
		}
	}
}
