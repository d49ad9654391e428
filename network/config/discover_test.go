package config_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/network/config"
)

// DRP-01, CFG-10: DiscoverFile reads one file, and its drop-ins if its name ends in .conflist, but
// no other file of the directory.
func TestDiscoverFile(t *testing.T) {
	t.Parallel()
	const list = `{"name": "red", "plugins": [{"type": "a"}]}`
	dir := tree(t, map[string]string{
		"a.conflist": list, "b.yaml": list, "c": `{"name": "red", "type": "s"}`, "d": "no JSON",
		"e.conf":      list,
		"up.conflist": `{"name": "..", "plugins": []}`, "none.conflist": `{"name": "none"}`,
		"cut.conflist": `{"name": "red",`,
		"red/x.conf":   `{"type": "x"}`, "red/y.json": "{}", "tenon.policy": "broken",
	})
	for name, want := range map[string]string{
		"a.conflist":    "a.conflist list chosen red (a,x)\nred/x.conf drop-in drop-in red\nred/y.json  ignored red",
		"b.yaml":        "b.yaml list chosen red (a)",
		"c":             "c single chosen red (s)",
		"d":             "d list broken ",
		"e.conf":        "e.conf single broken red",
		"up.conflist":   "up.conflist list broken ..",
		"none.conflist": "none.conflist list broken none",
		"cut.conflist":  "cut.conflist list broken red\nred/x.conf drop-in drop-in red\nred/y.json  ignored red",
		"absent":        "absent list broken ",
	} {
		var lines []string
		for _, f := range config.DiscoverFile(filepath.Join(dir, name)).Files {
			path, _ := filepath.Rel(dir, f.Path)
			line := fmt.Sprintf("%s %s %s %s", path, f.Kind, f.Use, f.Name)
			if f.Network != nil {
				line += " (" + types(f.Network) + ")"
			}
			if (f.Use == config.Broken) != (f.Err != nil) || f.Kind != config.OtherFile &&
				name != "absent" && f.Content == nil {
				t.Errorf("%s: error %v, content %q", line, f.Err, f.Content)
			}
			lines = append(lines, line)
		}
		if diff := cmp.Diff(want, strings.Join(lines, "\n")); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}
