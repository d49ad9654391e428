package ovs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/ovslab"
)

// TestOneProcess: the installed plugin starts no process for host-local, unless TENON_EXEC=always
// says so.
func TestOneProcess(t *testing.T) {
	// Not parallel: it sets an environment variable.
	testnet.Require(t, testnet.Tool("strace"))
	h := newCluster(t, 1, ovslab.Start, ipv4).hosts[0]
	c := conf{"vxlanID": 42,
		"ipam": conf{"type": "host-local", "dataDir": t.TempDir(), "subnet": "10.9.0.0/24"}}
	env := cni.Env{ContainerID: "c", IfName: "eth0", Netns: h.Container("c").Path()}
	trace := filepath.Join(t.TempDir(), "trace")
	for value, want := range map[string]int{"": 1, "always": 2} {
		t.Setenv("TENON_EXEC", value)
		for _, verb := range []cni.Command{cni.Add, cni.Del} {
			_, err := h.run(verb, env, c, "strace", "-f", "-qq", "-e", "trace=execve",
				"-e", "status=successful", "-o", trace)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(trace)
			if got := strings.Count(string(text), "execve("); err != nil || got != want {
				t.Error(fmt.Sprintf("TENON_EXEC=%s, %s: %d processes, want %d", value, verb, got, want), err)
			}
		}
	}
}
