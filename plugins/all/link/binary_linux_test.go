package link

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// build builds a program of this module, without the symbol table as in a release, and returns its
// path.
func build(t testing.TB, program string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(program))
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path,
		"github.com/tenon-cni/tenon/"+program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return path
}

// install copies a file.
func install(t testing.TB, from, to string, mode os.FileMode) string {
	t.Helper()
	src, err := os.Open(from)
	must(t, err)
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	must(t, err)
	_, err = io.Copy(dst, src)
	must(t, err)
	must(t, dst.Close())
	return to
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAccepts: a file is Tenon's by its content and mode, through any link to it.
func TestAccepts(t *testing.T) {
	t.Parallel()
	tenon, dir := build(t, "cmd/tenon"), t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	install(t, tenon, path("copy"), 0o755)
	install(t, tenon, path("plain"), 0o644)
	install(t, build(t, "cmd/tenon-dhcp"), path("dhcp"), 0o755)
	must(t, os.Link(path("copy"), path("hard")))
	must(t, os.Symlink("hard", path("soft")))
	must(t, os.Symlink("soft", path("twice")))
	must(t, os.Symlink("absent", path("dangling")))
	must(t, os.Mkdir(path("directory"), 0o755))
	must(t, os.WriteFile(path("script"), []byte("#!/bin/sh\n# "+mainPackage+"\n"), 0o755))
	must(t, os.WriteFile(path("empty"), nil, 0o755))
	self, err := os.Executable()
	must(t, err)
	must(t, os.Symlink(self, path("bridge")))
	var b binaries
	for range 2 { // the second answers are remembered ones
		for name, want := range map[string]bool{
			"copy": true, "hard": true, "soft": true, "twice": true,
			"plain": false, "dhcp": false, "dangling": false, "directory": false, "script": false,
			"empty": false, "bridge": false, "absent": false,
		} {
			if got := b.accepts(path(name)); got != want {
				t.Errorf("%s: %t", name, got)
			}
		}
	}
	if len(b.tenon) != 5 { // copy, dhcp, script, empty and bridge
		t.Errorf("%d files are remembered: %v", len(b.tenon), b.tenon)
	}
}

// TestAcceptsReplaced: a file that is replaced, written or made executable is read again.
func TestAcceptsReplaced(t *testing.T) {
	t.Parallel()
	tenon, dir := build(t, "cmd/tenon"), t.TempDir()
	path := filepath.Join(dir, "bridge")
	var b binaries
	for _, step := range []struct {
		name   string
		change func()
		want   bool
	}{
		{"a script", func() { must(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755)) }, false},
		{"written in place", func() { install(t, tenon, path, 0o755) }, true},
		{"not executable", func() { must(t, os.Chmod(path, 0o644)) }, false},
		{"executable", func() { must(t, os.Chmod(path, 0o755)) }, true},
		{"renamed over", func() {
			must(t, os.WriteFile(path+".new", []byte("#!/bin/sh\n"), 0o755))
			must(t, os.Rename(path+".new", path))
		}, false},
		{"replaced by a link", func() {
			must(t, os.Remove(path))
			must(t, os.Symlink(tenon, path))
		}, true},
		{"removed", func() { must(t, os.Remove(path)) }, false},
	} {
		step.change()
		if got := b.accepts(path); got != step.want {
			t.Errorf("%s: %t", step.name, got)
		}
	}
}

// TestAcceptsForgets: the number of remembered files is limited.
func TestAcceptsForgets(t *testing.T) {
	t.Parallel()
	b := binaries{tenon: map[identity]bool{}}
	for i := range uint64(maxKnown) {
		b.tenon[identity{inode: i}] = true
	}
	self, err := os.Executable()
	must(t, err)
	if b.accepts(self) || len(b.tenon) != 1 {
		t.Errorf("%d files are remembered", len(b.tenon))
	}
}

// BenchmarkAccepts measures the first answer for a file and the remembered one.
func BenchmarkAccepts(b *testing.B) {
	tenon := build(b, "cmd/tenon")
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			if !new(binaries).accepts(tenon) {
				b.Fatal("not Tenon's")
			}
		}
	})
	b.Run("later", func(b *testing.B) {
		var known binaries
		for b.Loop() {
			if !known.accepts(tenon) {
				b.Fatal("not Tenon's")
			}
		}
	})
}
