package install

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ops/plugindir"
)

// TestSuperseded removes the files of the install script after a package has linked its plugins in
// the same directory, which the script created. The directory then belongs to the package.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	path := func(name string) string { return filepath.Join(root, name) }
	opt, dir := path("opt"), path("opt/bin")
	write(t, path("package/bridge"), "package")
	build(t, path("opt/bin/tenon-dhcp")) // the package has no such plugin
	write(t, path("usr/tenon"), "program")
	manifest := path("usr/installed-files")
	write(t, manifest, "plugins "+dir+"\ndirectory "+opt+"\ndirectory "+dir+"\ndirectory "+path("usr")+
		"\nfile "+hash([]byte("program"))+" "+path("usr/tenon")+"\n")
	host := &plugindir.Host{Source: path("package"), Dirs: []string{dir}}
	if _, err := host.Link(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := PlanRemoval(t.Context(), Removal{Superseded: true, Manifest: manifest, Host: host})
	if err != nil {
		t.Fatal(err)
	}
	got := [][]string{p.Plugins, p.Files, p.Directories, p.Links, p.Tables}
	want := [][]string{{path("opt/bin/tenon-dhcp")}, {path("usr/tenon"), manifest}, {path("usr")}, nil, nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if done, err := p.Finish(); !done || err != nil {
		t.Error(done, err)
	}
	if _, err := p.RemoveFiles(); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(path("opt/bin/bridge")); err != nil || to != path("package/bridge") {
		t.Errorf("bridge leads to %q, %v", to, err)
	}
	if err := host.Restore(t.Context()); err != nil { // the removal of the package
		t.Fatal(err)
	}
	for _, gone := range []string{opt, path("usr")} {
		if _, err := os.Lstat(gone); err == nil {
			t.Errorf("%s remains", gone)
		}
	}
}

// TestRunRefusesDirectoryOfPackage leaves links of a package alone.
func TestRunRefusesDirectoryOfPackage(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "bin")
	write(t, filepath.Join(root, "package/bridge"), "package")
	host := &plugindir.Host{Source: filepath.Join(root, "package"), Dirs: []string{dir}}
	if _, err := host.Link(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), Request{Dir: dir, Names: []string{"ptp"}, Host: host}); err == nil {
		t.Error("installed next to the links of a package")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 { // the link and the mark
		t.Errorf("%v", entries)
	}
}
