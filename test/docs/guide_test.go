package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamesInProse: the names of public packages in guides and README, such as `network.Client`,
// exist.
func TestNamesInProse(t *testing.T) {
	t.Parallel()
	packages, members := map[string]bool{}, map[string]bool{}
	types := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(root, "api", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`^(?:const|var|func|type) (?:\(\*?(\w+)\) )?(\w+)(?:, (?:embeds \S*?)?(\w+))?`)
	for _, name := range files {
		pkg := strings.TrimSuffix(filepath.Base(name), ".txt")
		pkg = pkg[strings.LastIndex(pkg, "-")+1:]
		packages[pkg] = true
		for _, l := range strings.Split(read(t, name), "\n") {
			m := line.FindStringSubmatch(l)
			switch {
			case m == nil:
			case m[1] != "":
				members[m[1]+"."+m[2]] = true
			case m[3] != "":
				members[m[2]+"."+m[3]] = true
			default:
				members[pkg+"."+m[2]] = true
				if strings.HasPrefix(l, "type ") {
					types[m[2]] = true
				}
			}
		}
	}
	code := regexp.MustCompile("`[^`\n]+`")
	name := regexp.MustCompile(`\b(\w+)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)
	found := 0
	for _, page := range []string{"docs/embedding.md", "docs/writing-plugins.md", "README.md"} {
		for _, span := range code.FindAllString(read(t, filepath.Join(root, page)), -1) {
			for _, m := range name.FindAllStringSubmatch(span, -1) {
				if !packages[m[1]] && !types[m[1]] {
					continue
				}
				found++
				if !members[m[1]+"."+m[2]] {
					t.Errorf("%s: there is no %s.%s", page, m[1], m[2])
				} else if m[3] != "" && !members[m[2]+"."+m[3]] {
					t.Errorf("%s: there is no %s.%s", page, m[2], m[3])
				}
			}
		}
	}
	if found < 40 {
		t.Errorf("only %d names found", found)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDriver checks that the driver in the guide is the one that the script conform-runtime tests.
func TestDriver(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(read(t, filepath.Join(root, "docs/conformance.md")), "```sh\n#!/bin/sh\n")
	driver, _, _ := strings.Cut(rest, "```\n")
	script := read(t, filepath.Join(root, "test/script/testdata/conform-runtime.txtar"))
	if driver == "" || !strings.HasSuffix(script, "-- driver --\n#!/bin/sh\n"+driver) {
		t.Errorf("docs/conformance.md and conform-runtime.txtar have different drivers")
	}
}
