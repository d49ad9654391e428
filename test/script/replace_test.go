package script

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReplaceLine publishes the repository in a module proxy of its own and builds a program that
// uses libcni. One replace line makes the program use Tenon.
func TestReplaceLine(t *testing.T) {
	t.Parallel()
	require(t)
	const (
		version = "v0.9.0"
		tenon   = "github.com/tenon-cni/tenon"
		libcni  = "github.com/containernetworking/cni"
	)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	proxy, dir := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example\n\ngo 1.26.0\n\nrequire " + libcni + " v1.3.1\n\n" +
			"replace " + libcni + " => " + tenon + "/compat/cni " + version + "\n",
		"main.go": `package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containernetworking/cni/libcni"
)

func main() {
	info, err := libcni.NewCNIConfig(os.Args[1:2], nil).GetVersionInfo(context.Background(), os.Args[2])
	fmt.Println(info.SupportedVersions(), err)
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(dir, name string, arg ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, arg...)
		cmd.Dir = dir
		cmd.Env = append(goEnvironment(t, "file://"+proxy), "GOFLAGS=-mod=mod -modcacherw -trimpath", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
		return string(out)
	}
	publish(t, proxy, root, tenon, version)
	compat := filepath.Join(t.TempDir(), "cni")
	if err := os.CopyFS(compat, os.DirFS(filepath.Join(root, "compat/cni"))); err != nil {
		t.Fatal(err)
	}
	run(compat, "go", "mod", "edit", "-require="+tenon+"@"+version) // as a release does
	publish(t, proxy, compat, tenon+"/compat/cni", version)

	run(dir, "go", "build", "-o", "example", ".")
	if err := os.Symlink(filepath.Join(root, "bin/tenon"), filepath.Join(dir, "bridge")); err != nil {
		t.Fatal(err)
	}
	out := run(dir, filepath.Join(dir, "example"), dir, "bridge")
	if want := "[0.1.0 0.2.0 0.3.0 0.3.1 0.4.0 1.0.0 1.1.0] <nil>\n"; out != want {
		t.Errorf("the program printed %q instead of %q", out, want)
	}
}

// goEnvironment returns the environment of a go command that finds an empty module cache, as on the
// machine of a new user: a test must not rely on what another one has downloaded. Modules come from
// the named proxies, the cache of this machine, and the configured proxy. With -trimpath, packages are
// not compiled again for each cache.
func goEnvironment(t *testing.T, proxies ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	configured := strings.Fields(string(out))
	proxies = append(proxies, "file://"+filepath.Join(configured[0], "cache", "download"), configured[1])
	return append(os.Environ(), "GOMODCACHE="+t.TempDir(), "GOFLAGS=-buildvcs=false -modcacherw -trimpath",
		"GOPROXY="+strings.Join(proxies, ","), "GOSUMDB=off", "CGO_ENABLED=0", "GOWORK=")
}

// publish adds the module in dir to a module proxy (go.dev/ref/mod#goproxy-protocol).
func publish(t *testing.T, proxy, dir, module, version string) {
	t.Helper()
	base := filepath.Join(proxy, module, "@v", version)
	write := func(path, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	write(base+".mod", string(mod))
	write(base+".info", `{"Version": "`+version+`"}`)
	f, err := os.Create(base + ".zip")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	if err := addModule(z, dir, module+"@"+version+"/"); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

// addModule adds the source of the module in dir, without nested modules and binaries.
func addModule(z *zip.Writer, dir, prefix string) error {
	return filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name := strings.TrimPrefix(path, dir+"/")
		if e.IsDir() {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if err == nil || name == "bin" || strings.HasPrefix(e.Name(), ".") ||
				strings.HasPrefix(name, "docs/") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") && !strings.HasPrefix(name, "go.") &&
			!strings.HasSuffix(name, ".md") {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		w, err := z.Create(prefix + name)
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	})
}
