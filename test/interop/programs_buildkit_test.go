//go:build programs

package interop

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestProgramBuildKit: BuildKit's network provider attaches the containers of a build with Tenon's
// plugins under the names that BuildKit ships. They reach the host, and nothing of them is left.
func TestProgramBuildKit(t *testing.T) {
	t.Parallel()
	for _, built := range []library{original, compat} {
		t.Run(string(built), func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			tenon := n.install()
			names := n.dir + "/names"
			must(t, os.Mkdir(names, 0o755))
			for _, plugin := range []string{"bridge", "loopback", "host-local", "firewall"} {
				n.run("ln", "-s", tenon, names+"/buildkit-cni-"+plugin)
			}
			n.search = searchFrom(names)
			n.buildKit(built) // leaves the shared objects
			before := n.snapshot()
			n.buildKit(built)
			n.unchanged(before)
			n.nothingKept()
		})
	}
}

// buildKit attaches two containers, and detaches them after they have reached the host.
func (n *node) buildKit(built library) {
	n.t.Helper()
	cmd := n.command(built.dir(n.t, "buildkit")+"/buildkit", "/run/buildkit")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(n.t, err)
	out, err := cmd.StdoutPipe()
	must(n.t, errors.Join(err, cmd.Start()))
	paths := bufio.NewScanner(out)
	for range 2 {
		if !paths.Scan() {
			n.t.Fatalf("no namespace: %v", errors.Join(paths.Err(), cmd.Wait()))
		}
		n.inPod(paths.Text(), func() error { // the host refuses, because no server runs there
			if _, err := net.DialTimeout("tcp4", "10.97.0.1:80", time.Minute); !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("%s to the host: %w", paths.Text(), err)
			}
			return nil
		})
	}
	must(n.t, errors.Join(in.Close(), cmd.Wait()))
}
