package install

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestManifest removes unchanged files, keeps changed ones and skips missing ones. A created
// directory remains only if it contains other files.
func TestManifest(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	in := func(path string) string { return filepath.Join(root, path) }
	write(t, in("bin/tenon"), "program")
	write(t, in("bin/other"), "not ours")
	write(t, in("share/man/tenon.8"), "edited")
	list := in(ManifestPath)
	write(t, list, "# comment\nplugins /opt/cni/bin\ndirectory "+in("share")+"\ndirectory "+in("share/tenon")+"\ndirectory "+in("share/man")+
		"\ndirectory "+in("share/gone")+"\nfile "+hash([]byte("program"))+" "+in("bin/tenon")+
		"\nfile "+hash([]byte("page"))+" "+in("share/man/tenon.8")+"\nfile 0 "+in("bin/gone")+"\n")

	p := &Plan{request: Removal{Manifest: list}}
	m, err := readManifest(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.installed(m); err != nil {
		t.Fatal(err)
	}
	want := &Plan{
		Files: []string{in("bin/tenon"), list}, Changed: []string{in("share/man/tenon.8")},
		Directories: []string{in("share/tenon"), in("share/man"), in("share")},
	}
	if diff := cmp.Diff(want, p, cmpopts.IgnoreUnexported(Plan{})); diff != "" {
		t.Error(diff)
	}
	remaining, err := p.RemoveFiles()
	if err != nil || !slices.Equal(remaining, []string{in("share/man")}) {
		t.Errorf("remaining %q, %v", remaining, err)
	}
	for path, exists := range map[string]bool{
		"bin/tenon": false, "bin/other": true, "share/man/tenon.8": true, "share/tenon": false,
	} {
		if _, err := os.Lstat(in(path)); (err == nil) != exists {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := p.RemoveFiles(); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestManifestErrors(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"file 0 relative", "file 0", "directory", "plugins ", "link 0 /etc/passwd", "",
	} {
		path := filepath.Join(t.TempDir(), "list")
		write(t, path, "directory /nowhere\n"+line+"\n")
		if m, err := readManifest(path); err == nil || m.directories != nil {
			t.Errorf("%q: %+v, %v", line, m, err)
		}
	}
	for _, none := range []string{"", filepath.Join(t.TempDir(), "none")} {
		if m, err := readManifest(none); err != nil || m.files != nil {
			t.Errorf("%q: %+v, %v", none, m, err)
		}
	}
}

func TestUnitsInUse(t *testing.T) {
	t.Parallel()
	dirs := systemdPaths{filepath.Join(t.TempDir(), "enabled"), filepath.Join(t.TempDir(), "active")}
	write(t, filepath.Join(dirs.enabled, "multi-user.target.wants/wanted.service"), "")
	write(t, filepath.Join(dirs.enabled, "sockets.target.requires/required.socket"), "")
	write(t, filepath.Join(dirs.active, "invocation:active.service"), "")
	write(t, filepath.Join(dirs.active, "invocation:tenon"), "")
	var files []installedFile
	for _, name := range []string{
		"bin/tenon", "lib/systemd/system/wanted.service", "lib/systemd/system/required.socket",
		"lib/systemd/system/idle.service", "lib/systemd/system/active.service",
	} {
		files = append(files, installedFile{path: "/usr/local/" + name})
	}
	want := []string{"active.service", "required.socket", "wanted.service"}
	if diff := cmp.Diff(want, unitsInUse(files, dirs)); diff != "" {
		t.Error(diff)
	}
}
