package script

import (
	"bytes"
	"go/format"
	"os"
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
	run(t, "testdata/guide/embedding.txtar", exampleEnv+"="+build(t, string(guide), files))
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

// build follows the guide: it makes a module with its commands and files, and returns the path of
// the program.
func build(t *testing.T, guide string, files map[string]string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	m := module{t: t, dir: t.TempDir(), root: root}
	m.sh(commands(t, guide, "mkdir myruntime"))
	m.dir = filepath.Join(m.dir, "myruntime")
	m.write("go.sum", string(sums))
	for name, content := range files {
		m.write(name, content)
	}
	tidy, _, _ := strings.Cut(commands(t, guide, "go mod tidy\ngo build"), "\nip ")
	m.sh(tidy)
	return filepath.Join(m.dir, "myruntime")
}
