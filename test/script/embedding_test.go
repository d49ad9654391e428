package script

import (
	"bytes"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// exampleEnv names the program of the embedding guide.
const exampleEnv = "TENON_SCRIPT_EXAMPLE"

// TestEmbeddingGuide builds the program of the embedding guide from the files in its text and runs
// it. The program must not harm attachments of other runtimes: of tenon, of a runtime with another
// state directory, of libcni.
func TestEmbeddingGuide(t *testing.T) {
	t.Parallel()
	require(t)
	guide, err := os.ReadFile("../../docs/embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	files := program(t, string(guide), ".")
	if len(files) != 5 {
		t.Errorf("%d files", len(files))
	}
	run(t, "testdata/guide/embedding.txtar", exampleEnv+"="+build(t, files))
}

// program returns the Go files of a page that are in one directory, by name. Every Go block of the
// page must be a formatted file.
func program(t *testing.T, page, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, b := range blocks(page) {
		if !strings.HasPrefix(b.info, "go") {
			continue
		}
		title := fileTitle.FindStringSubmatch(b.info)
		if title == nil {
			t.Fatalf("line %d: a Go block without a file name", b.line)
		}
		source := strings.Join(b.lines, "\n") + "\n"
		formatted, err := format.Source([]byte(source))
		if err != nil || !bytes.Equal(formatted, []byte(source)) {
			t.Errorf("line %d: %s is not formatted: %v", b.line, title[1], err)
		}
		if filepath.Dir(title[1]) == dir {
			files[filepath.Base(title[1])] = source
		}
	}
	return files
}

// build builds a program in its own module and returns its path.
func build(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	mod := strings.Replace(read("go.mod"), "module github.com/tenon-cni/tenon", "module example", 1)
	mod += "\nrequire github.com/tenon-cni/tenon v0.0.0\nreplace github.com/tenon-cni/tenon => " + root + "\n"
	dir := t.TempDir()
	files["go.mod"], files["go.sum"] = mod, read("go.sum")
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", "example", ".")
	cmd.Dir = dir
	cmd.Env = append(goEnvironment(t), "GOFLAGS=-mod=mod -modcacherw -trimpath", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "example")
}
