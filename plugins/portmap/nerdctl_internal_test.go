package portmap

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

// TestOfNerdctl: a network belongs to nerdctl if its list is in nerdctl's directory and has its
// mark.
func TestOfNerdctl(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"nerdctl-marked.conflist":   `{"name":"marked","nerdctlID":"17f2","plugins":[]}`,
		"nerdctl-numbered.conflist": `{"name":"numbered","nerdctlID":2,"plugins":[]}`,
		"nerdctl-plain.conflist":    `{"name":"plain","plugins":[]}`,
		"nerdctl-broken.conflist":   `{"nerdctlID":`,
		"10-other.conflist":         `{"name":"other","nerdctlID":"17f2","plugins":[]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "nerdctl-directory.conflist"), 0o700); err != nil {
		t.Fatal(err)
	}
	for network, want := range map[string]bool{
		"marked": true, "numbered": true, "plain": false, "broken": false, "other": false, "directory": false, "absent": false,
	} {
		c := &Config{Common: plugin.Common{Name: network}}
		if got := ofNerdctl(c, cni.Env{}, dir); (got != "") != want {
			t.Errorf("%s: %q", network, got)
		}
	}
}
