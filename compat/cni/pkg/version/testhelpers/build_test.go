package testhelpers_test

import (
	"archive/zip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/version/testhelpers"
)

const (
	library = "github.com/containernetworking/cni"
	gitRef  = "f4364185253"
	pseudo  = "v0.0.0-20200101000000-f43641852530"
	source  = `package main

import (
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
)

func main() { fmt.Fprint(os.Stdout, skel.Text) }
`
)

// proxy sets the environment of the go command such that it finds only a library of its own, which
// has one package and one Git reference. Tests that use it are not parallel.
func proxy(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	versions := filepath.Join(dir, "proxy", filepath.FromSlash(library), "@v")
	if err := os.MkdirAll(versions, 0o700); err != nil {
		t.Fatal(err)
	}
	const module = "module " + library + "\n"
	info := fmt.Sprintf(`{"Version":%q,"Time":"2020-01-01T00:00:00Z"}`, pseudo)
	for name, text := range map[string]string{
		gitRef + ".info": info, pseudo + ".info": info, pseudo + ".mod": module, "list": "",
	} {
		if err := os.WriteFile(filepath.Join(versions, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	archive, err := os.Create(filepath.Join(versions, pseudo+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	z := zip.NewWriter(archive)
	for name, text := range map[string]string{
		"go.mod":           module,
		"pkg/skel/skel.go": "package skel\n\nconst Text = \"built at " + gitRef + "\"\n",
	} {
		w, err := z.Create(library + "@" + pseudo + "/" + name)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		"GOPROXY":    "file://" + filepath.ToSlash(filepath.Join(dir, "proxy")),
		"GOSUMDB":    "off",
		"GOMODCACHE": filepath.Join(dir, "cache"),
		"GOFLAGS":    "-modcacherw",
		"GOTMPDIR":   dir,
		"GOPRIVATE":  "",
		"GONOPROXY":  "",
		"GOWORK":     "off",
	} {
		t.Setenv(key, value)
	}
}

func TestBuildAt(t *testing.T) {
	proxy(t)
	binary := filepath.Join(t.TempDir(), "program")
	if err := testhelpers.BuildAt([]byte(source), gitRef, binary); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(binary).CombinedOutput()
	if want := "built at " + gitRef; err != nil || string(out) != want {
		t.Errorf("%v, %q, want %q", err, out, want)
	}
	left, err := filepath.Glob(filepath.Join(os.Getenv("GOTMPDIR"), "cni-build-*"))
	if err != nil || left != nil {
		t.Errorf("%v, temporary modules are left: %q", err, left)
	}
}

func TestBuildAtErrors(t *testing.T) {
	proxy(t)
	for _, tt := range []struct{ name, source, ref, prefix, text string }{
		{"unknown reference", source, "0123456789ab", "running ", "0123456789ab"},
		{"syntax error", "package", gitRef, "failed to build: running ", "main.go"},
		{"does not compile", strings.Replace(source, "skel.Text", "skel.None", 1), gitRef,
			"failed to build: running ", "undefined: skel.None"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			binary := filepath.Join(t.TempDir(), "program")
			err := testhelpers.BuildAt([]byte(tt.source), tt.ref, binary)
			if err == nil || !strings.HasPrefix(err.Error(), tt.prefix) ||
				!strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v, want %s… %s", err, tt.prefix, tt.text)
			}
			if _, err := os.Stat(binary); err == nil {
				t.Error("the binary exists")
			}
		})
	}
}
