package archtest

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestRequiredModules checks that Tenon requires no module of this repository, and that the compat
// module itself requires only Tenon.
func TestRequiredModules(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	const format = `{{if not .Main}}{{.Path}}{{if .Indirect}} indirect{{end}}{{end}}`
	for _, required := range modules(t, root, format) {
		if required == compatModule || strings.HasPrefix(required, module+"/") {
			t.Errorf("Tenon requires %s", required)
		}
	}
	for _, required := range modules(t, filepath.Join(root, "compat", "cni"), format) {
		if required != module && !strings.HasSuffix(required, " indirect") {
			t.Errorf("compat requires %s", required)
		}
	}
}

// modules lists the modules of the build list, one per line of the format.
func modules(t *testing.T, dir, format string) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(string(goList(t, dir, "-m", "-f", format, "all"))), "\n")
}
