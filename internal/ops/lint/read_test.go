package lint_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ops/lint"
)

// tree makes a folder with files, the content of each its own name unless there is another.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func summary(dir string, files []lint.File) string {
	var lines []string
	for _, f := range files {
		name, _ := filepath.Rel(dir, f.Path)
		failed := ""
		if f.Err != nil {
			failed = " error: " + f.Err.Error()
		}
		lines = append(lines, strings.TrimSpace(name+" "+[]string{"other", "list", "single", "drop-in"}[f.Form]+" "+f.Network+failed))
	}
	return strings.Join(lines, "\n")
}

func TestReadDir(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{
		"10-a.conflist": "x", "20-b.conf": "", "30-c.json": "", "README": "", ".hidden.conf": "", "pods/a.conf": "", "pods/b.json": "",
		"pods/deeper/c.conf": "", "no network/x.conf": "",
	})
	for link, target := range map[string]string{"dangling.conflist": "nowhere", "device.conf": "/dev/null"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := lint.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	const want = `.hidden.conf single
10-a.conflist list
20-b.conf single
30-c.json single
README other
dangling.conflist list  error: no such file or directory
pods/a.conf drop-in pods
pods/b.json other pods`
	if diff := cmp.Diff(want, summary(dir, files)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if string(files[1].Data) != "x" {
		t.Errorf("content %q", files[1].Data)
	}
	if _, err := lint.ReadDir(filepath.Join(dir, "absent")); err == nil {
		t.Error("a folder that does not exist was read")
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	const list = `{"name": "pods", "plugins": []}`
	dir := tree(t, map[string]string{
		"a.conflist": list, "b.yaml": list, "c": `{"type": "bridge"}`, "d": "no JSON", "e.conf": list, "pods/x.conf": "", "pods/y.conf": "",
	})
	for name, want := range map[string]string{
		"a.conflist": "a.conflist list\npods/x.conf drop-in pods\npods/y.conf drop-in pods",
		"b.yaml":     "b.yaml list\npods/x.conf drop-in pods\npods/y.conf drop-in pods",
		"c":          "c single",
		"d":          "d single",
		"e.conf":     "e.conf single",
	} {
		files, err := lint.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, summary(dir, files)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := lint.ReadFile(filepath.Join(dir, "absent")); err == nil {
		t.Error("a file that does not exist was read")
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	files := []lint.File{
		{Form: lint.List, Data: []byte(`{"plugins": [{"type": "b", "ipam": {"type": "i"}}, {"type": "../x"}, {}, {"type": "a"}, 7]}`)},
		{Form: lint.Single, Data: []byte(`{"type": "s"}`)},
		{Form: lint.DropIn, Data: []byte(`{"type": "d"}`)},
		{Form: lint.Other, Data: []byte(`{"type": "o"}`)},
		{Form: lint.List, Data: []byte(`{`)},
	}
	if diff := cmp.Diff([]string{"a", "b", "d", "i", "s"}, lint.Types(files)); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
}

func TestFindingAsJSON(t *testing.T) {
	t.Parallel()
	found := lint.Check([]lint.File{{Path: "a~/b", Form: lint.Single, Data: []byte("{\"cniVersion\": \"0.4.0\", \"name\": \"n\",\n \"type\": \"bridge\", \"é\": 0, \"x/~y\": 1}")}}, nil)
	got, err := json.Marshal(found[1:])
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"severity":"warning","rule":"unknown-key","file":"a~/b","line":2,"column":28,"pointer":"/x~1~0y","network":"n","plugin":"bridge",` +
		`"message":"nobody reads the key \"x/~y\" here"}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("finding (-want +got):\n%s", diff)
	}
}
