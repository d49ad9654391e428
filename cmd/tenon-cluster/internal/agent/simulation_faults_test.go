package agent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// plantedFaults are rules of decision 0020 that a program does not follow, as replacements in files of
// the program: file, old text, new text.
var plantedFaults = map[string][][3]string{
	"the store is not compared with the past": {
		{"../registry/seen.go", "answer.Revision < before.Revision", "false"},
		{"../registry/node.go", "n.Revision >= newest", "true"},
		{"../registry/proof.go", "case own.InDoubt && p.Turn < own.Turn:", "case p.Turn < own.Turn:"},
		{"trust.go", "same && n.Revision < newest", "same && n.Revision < min(newest, 0)"},
		{"trust.go", "n.Revision < t.newest", "false"},
		{"watch.go", "n.Revision < revisions[n.Name]", "false"},
	},
	"a restarted agent forgets the past": {
		{"trust.go", "t.seen.Reset(n.Seen)", "t.seen.Reset(cluster.Mark{})"},
		{"trust.go", `n.Restored != ""`, "false"},
		{"trust.go", "t.newest = n.Revision\n\tt.mu.Unlock()\n\tt.seen", "t.newest = 0\n\tt.mu.Unlock()\n\tt.seen"},
		{"../registry/proof.go", "case own.InDoubt && p.Turn < own.Turn:", "case p.Turn < own.Turn:"},
	},
	"evidence is not reported": {
		{"trust.go", "if !t.unsaid() {", "if t.unsaid() || !t.unsaid() {"},
		{"watch.go", "n.Revision < revisions[n.Name]", "false"},
	},
	"an earlier nonce is confirmed": {
		{"../../../../internal/cluster/node.go", "nonceNumber(nonce) > nonceNumber(other)", "nonce != other"},
	},
	"broken connections begin no wait": {
		{"trust.go", "t.o.Breaks == nil ||", "true ||"},
	},
	"no proof is compared": {
		{"../registry/proof.go", "case own.has(p.Value):", "case true:"},
	},
	"the place is not compared": {
		{"../../../../internal/cluster/local/place.go", `if place == "" {`, "if true {"},
	},
}

// TestPlantedFaults checks that the simulation finds programs with faults. With -short it only checks
// that the faults can be planted.
func TestPlantedFaults(t *testing.T) {
	for name, edits := range plantedFaults {
		t.Run(name, func(t *testing.T) {
			overlay := overlay(t, edits)
			if testing.Short() {
				return
			}
			start := time.Now()
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-overlay", overlay,
				"-run", "^TestSimulation$", "-v", ".", "-timeout", "0", "-simulate", "10m", "-shrink", "0s")
			out, err := cmd.CombinedOutput()
			found := regexp.MustCompile(`seed \d+, after .* has two holders`).Find(out)
			var failed *exec.ExitError
			if !errors.As(err, &failed) || found == nil {
				t.Fatalf("%q: not found: %v\n%s", name, err, out[max(0, len(out)-2000):])
			}
			t.Logf("%q: found after %s: %s", name, time.Since(start).Round(time.Second), found)
		})
	}
}

// overlay returns an overlay for the go command (see "go help build") with edited files.
func overlay(t *testing.T, edits [][3]string) string {
	t.Helper()
	dir, edited := t.TempDir(), map[string]string{}
	for _, e := range edits {
		path, err := filepath.Abs(e[0])
		if err != nil {
			t.Fatal(err)
		}
		from := path
		if edited[path] != "" {
			from = edited[path]
		}
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Count(content, []byte(e[1])) != 1 {
			t.Fatalf("%s does not have %q once", e[0], e[1])
		}
		to := filepath.Join(dir, strings.ReplaceAll(e[0], "/", "_"))
		if err := os.WriteFile(to, bytes.Replace(content, []byte(e[1]), []byte(e[2]), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		edited[path] = to
	}
	content, err := json.Marshal(map[string]any{"Replace": edited})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
