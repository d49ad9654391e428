package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestContributing builds the plugin of CONTRIBUTING.md as plugins/innerbridge and runs its suite on
// the real kernel. An overlay keeps the files out of the tree.
func TestContributing(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root, testnet.Tool("go"))
	dir := t.TempDir()
	repository, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	overlay := map[string]string{}
	page := read(t, filepath.Join(root, "CONTRIBUTING.md"))
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(page, -1) {
		name := "innerbridge.go"
		if strings.HasPrefix(block[1], "package innerbridge_test\n") {
			name = "innerbridge_test.go"
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(block[1]), 0o644); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(repository, "plugins", "innerbridge", name)] = file
	}
	if len(overlay) != 2 {
		t.Fatalf("the page has %d Go files, want 2", len(overlay))
	}
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, text, 0o644); err != nil {
		t.Fatal(err)
	}
	suite := filepath.Join(dir, "suite")
	build := exec.Command("go", "test", "-vet=off", "-c", "-o", suite, "-overlay", list, "./plugins/innerbridge")
	build.Dir = repository
	run := exec.Command(suite, fmt.Sprintf("-test.short=%t", testing.Short()))
	run.Dir = dir
	for _, cmd := range []*exec.Cmd{build, run} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
}
