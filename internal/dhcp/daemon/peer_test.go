package daemon_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestPeer checks that the daemon answers only root, even if other users may open the socket, for
// example because systemd grants access to a group.
func TestPeer(t *testing.T) {
	testnet.Require(t, testnet.Root)
	socket := serve(t, func(context.Context, *dhcp.Request) *dhcp.Reply { return new(dhcp.Reply) })
	for dir := filepath.Dir(socket); dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	for user, want := range map[int]string{0: "TENON-DHCP/1\n", 65534: ""} {
		c, err := testnet.DialAs(user, socket)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "TENON-DHCP/1\n")
		b := make([]byte, 64)
		if err := c.SetDeadline(time.Now().Add(testnet.Patience)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(b); string(b[:n]) != want || os.IsTimeout(err) {
			t.Errorf("user %d got %q, %v", user, b[:n], err)
		}
		c.Close()
	}
}
