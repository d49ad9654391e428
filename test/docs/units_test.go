package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestUnits has systemd read the units that operators are given, and looks for what makes a reload reach them.
func TestUnits(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("systemd-analyze"))
	units, err := filepath.Glob("../../contrib/systemd/*.service")
	if err != nil || len(units) == 0 {
		t.Fatal("no units:", err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{
			"Type=oneshot", "RemainAfterExit=yes", "ExecReload=/usr/local/bin/tenon repair",
			"After=nftables.service firewalld.service", "ReloadPropagatedFrom=nftables.service firewalld.service",
		} {
			if !strings.Contains(string(text), "\n"+line+"\n") {
				t.Errorf("%s: no line %s", unit, line)
			}
		}
		copied := filepath.Join(t.TempDir(), filepath.Base(unit))
		program := strings.ReplaceAll(string(text), "=/usr/local/bin/tenon ", "=/bin/true ") // which is there
		if err := os.WriteFile(copied, []byte(program), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("systemd-analyze", "verify", copied).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
	}
}
