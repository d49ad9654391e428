package config_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden is the file of a layout with the expected description of the other files.
const golden = "want"

// R-07, CFG-01, CFG-04, CFG-10, CFG-23, DSC-02, DSC-03, DSC-04, DSC-05, DSC-06, DSC-07, DSC-08,
// DRP-01, DRP-02, DRP-03, DRP-04, DRP-06, DRP-09, VER-07, VER-08, VER-09: how each file is used,
// and which network a look-up finds, in typical directories. The first line of each layout states
// its purpose.
func TestDiscover(t *testing.T) {
	t.Parallel()
	layouts, err := filepath.Glob("testdata/layouts/*.txtar")
	if err != nil || len(layouts) == 0 {
		t.Fatal(layouts, err)
	}
	for _, layout := range layouts {
		t.Run(strings.TrimSuffix(filepath.Base(layout), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(layout)
			if err != nil {
				t.Fatal(err)
			}
			files, want := map[string]string{}, ""
			for _, f := range archive.Files {
				if f.Name == golden {
					want = string(f.Data)
					continue
				}
				files[f.Name] = string(f.Data)
			}
			got := describeDirectory(t, tree(t, files))
			if diff := cmp.Diff(want, got); diff != "" && !*update {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if !*update {
				return
			}
			archive.Files = slices.DeleteFunc(archive.Files,
				func(f txtar.File) bool { return f.Name == golden })
			archive.Files = append(archive.Files, txtar.File{Name: golden, Data: []byte(got)})
			if err := os.WriteFile(layout, txtar.Format(archive), 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// describeDirectory describes a directory as text.
func describeDirectory(t *testing.T, dir string) string {
	t.Helper()
	c := discover(t, dir)
	var b strings.Builder
	names := []string{"red"}
	for _, f := range c.Files {
		fmt.Fprintf(&b, "%s: %s", f.Path, f.Use)
		if f.Name != "" {
			fmt.Fprintf(&b, " %s", f.Name)
		}
		if f.Network != nil {
			fmt.Fprintf(&b, " %v (%s)", f.Network.Version, types(f.Network))
		}
		for _, note := range []string{f.ShadowedBy, f.Reason} {
			if note != "" {
				b.WriteString("; " + note)
			}
		}
		if f.Default {
			b.WriteString("; default")
		}
		if f.Err != nil {
			b.WriteString("; " + describe(f.Err))
		}
		b.WriteString("\n")
		if f.Name != "" && cni.ValidateNetworkName(f.Name) == nil &&
			!slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	if c.Policy != nil {
		fmt.Fprintf(&b, "required: %v\n", c.Policy.Required("red"))
	}
	for _, name := range names {
		n, passed, err := c.Lookup(name)
		fmt.Fprintf(&b, "look-up of %s: %s", name, found(n, err))
		for _, f := range passed {
			fmt.Fprintf(&b, "; passed %s", f.Path)
		}
		n, err = config.Load(dir, name)
		fmt.Fprintf(&b, "\nwithout passing: %s\n", found(n, err))
	}
	n, err := c.Default()
	fmt.Fprintf(&b, "default: %s\n", found(n, err))
	return strings.ReplaceAll(b.String(), dir, "DIR")
}

func found(n *config.Network, err error) string {
	if err != nil {
		return describe(err)
	}
	return n.Source + " (" + types(n) + ")"
}
