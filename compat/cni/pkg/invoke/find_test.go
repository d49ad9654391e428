package invoke_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/pkg/invoke"
)

// FindInPath returns the first regular file, with or without execute bit.
func TestFindInPath(t *testing.T) {
	t.Parallel()
	ext := invoke.ExecutableFileExtensions[0]
	root := t.TempDir()
	dir := func(name string) string { return filepath.Join(root, name) }
	for _, d := range []string{"first/directory" + ext, "second", "empty"} {
		if err := os.MkdirAll(dir(d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"first/both", "second/both", "second/one", "second/directory"} {
		if err := os.WriteFile(dir(f)+ext, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("one"+ext, dir("second/link"+ext)); err != nil {
		t.Fatal(err)
	}
	both := []string{dir("first"), dir("second")}
	for _, row := range []struct {
		name, plugin string
		paths        []string
		want         string // below root
		err          string
	}{
		{"the first directory", "both", both, "first/both", ""},
		{"the second directory", "one", both, "second/one", ""},
		{"an absent directory is skipped", "one", []string{dir("absent"), dir("second")},
			"second/one", ""},
		{"an empty element is skipped", "one", []string{"", dir("second")}, "second/one", ""},
		{"a symbolic link", "link", both, "second/link", ""},
		{"a directory is not a plugin", "directory", both, "second/directory", ""},
		{"no name", "", nil, "", "no plugin name provided"},
		{"a path", "x" + string(os.PathSeparator) + "y", nil, "",
			"invalid plugin name: x" + string(os.PathSeparator) + "y"},
		{"no paths", "one", nil, "", "no paths provided"},
		{"not found", "absent", both, "",
			fmt.Sprintf("failed to find plugin %q in path [%s %s]", "absent", both[0], both[1])},
		{"dots", "..", both, "",
			fmt.Sprintf("failed to find plugin %q in path [%s %s]", "..", both[0], both[1])},
	} {
		if row.want != "" {
			row.want = dir(filepath.FromSlash(row.want)) + ext
		}
		got, err := invoke.FindInPath(row.plugin, row.paths)
		if got != row.want || fmt.Sprint(err) != row.err && (err != nil || row.err != "") {
			t.Errorf("%s: %q, %v, want %q, %q", row.name, got, err, row.want, row.err)
		}
		raw, rawErr := new(invoke.RawExec).FindInPath(row.plugin, row.paths)
		if raw != got || fmt.Sprint(rawErr) != fmt.Sprint(err) {
			t.Errorf("%s: RawExec: %q, %v", row.name, raw, rawErr)
		}
	}
}
