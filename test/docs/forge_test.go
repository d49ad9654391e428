package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// workflows returns the workflows of the forge, by path.
func workflows(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	all := map[string]string{}
	for _, path := range paths {
		all[path] = read(t, path)
	}
	return all
}

// TestActionsArePinned: a tag of an action can move to other code, and a commit cannot. The same action
// has the same commit in all workflows.
func TestActionsArePinned(t *testing.T) {
	t.Parallel()
	action := regexp.MustCompile(`uses: (\S+)(.*)`)
	pinned := regexp.MustCompile(`^[\w-]+/[\w/-]+@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+$`)
	pins := map[string]string{}
	for path, text := range workflows(t) {
		for _, m := range action.FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(m[1], "./") {
				continue
			}
			name, _, _ := strings.Cut(m[1], "@")
			pin := m[1] + m[2]
			if !pinned.MatchString(pin) {
				t.Errorf("%s: %q is not pinned to a commit with its version", path, pin)
			}
			if first, ok := pins[name]; ok && first != pin {
				t.Errorf("%s: %q, elsewhere %q", path, pin, first)
			}
			pins[name] = pin
		}
	}
	if len(pins) == 0 {
		t.Error("no actions found")
	}
}

// TestWorkflowsRunTargets: workflows run targets that exist, and the nightly one runs all long tests.
func TestWorkflowsRunTargets(t *testing.T) {
	t.Parallel()
	var targets []string
	makefile := read(t, filepath.Join(root, "Makefile"))
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(makefile, -1) {
		targets = append(targets, m[1])
	}
	long := regexp.MustCompile(`(?m)^ +target: \[(.*)\]$`)
	run := regexp.MustCompile(`(?:run:|^ +) +make (?:-C \S+ )?([a-z-]+)`)
	var nightly []string
	for path, text := range workflows(t) {
		var used []string
		if m := long.FindStringSubmatch(text); m != nil {
			for target := range strings.SplitSeq(m[1], ", ") {
				used = append(used, strings.Fields(target)[0])
			}
			nightly = append(nightly, used...)
		}
		for line := range strings.Lines(text) {
			if m := run.FindStringSubmatch(line); m != nil {
				used = append(used, m[1])
			}
		}
		for _, target := range used {
			if !slices.Contains(targets, target) {
				t.Errorf("%s: the Makefile has no target %q", path, target)
			}
		}
	}
	for _, target := range targets {
		if strings.HasPrefix(target, "test-") && !slices.Contains(nightly, target) {
			t.Errorf("no workflow runs make %s: add it to .github/workflows/long.yml", target)
		}
	}
}

// TestWorkflowsGo: workflows use the newest patch release of the Go version in go.mod.
func TestWorkflowsGo(t *testing.T) {
	t.Parallel()
	minor := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(
		read(t, filepath.Join(root, "go.mod")))
	for path, text := range workflows(t) {
		for _, m := range regexp.MustCompile(`go-version: (.*)`).FindAllStringSubmatch(text, -1) {
			if m[1] != minor[1]+".x" {
				t.Errorf("%s: Go %s, and go.mod has %s", path, m[1], minor[1])
			}
		}
	}
}

// TestInstallScriptKeys: the install script contains the release keys of packaging/keys.
func TestInstallScriptKeys(t *testing.T) {
	t.Parallel()
	var keys []string
	for line := range strings.Lines(read(t, filepath.Join(root, "packaging", "keys", "allowed_signers"))) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			keys = append(keys, line)
		}
	}
	script := read(t, filepath.Join(root, "packaging", "install.sh"))
	m := regexp.MustCompile(`(?s)\nsigners='(.*?)'\n`).FindStringSubmatch(script)
	if m == nil || strings.TrimSpace(m[1]) != strings.Join(keys, "\n") {
		t.Errorf("packaging/install.sh has the keys %q, packaging/keys %q", m, keys)
	}
}
