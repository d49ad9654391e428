package hostlocal

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
)

func TestReadResolvConf(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		want       cni.DNS
	}{
		{"simple", "nameserver 192.0.2.0\nnameserver 192.0.2.1\n", cni.DNS{Nameservers: []string{"192.0.2.0", "192.0.2.1"}}},
		{"comments and short lines", "nameserver 192.0.2.0\n#nameserver 192.0.2.1\n ; nameserver 192.0.2.2\nnameserver\n\nsortlist 1.2.3.4\n",
			cni.DNS{Nameservers: []string{"192.0.2.0"}}},
		{"all fields add up, the last domain counts", "nameserver 192.0.2.0\ndomain a.example\nsearch b.example c.example\ndomain d.example\nsearch e.example\noptions four\n\toptions five six\n",
			cni.DNS{Nameservers: []string{"192.0.2.0"}, Domain: "d.example", Search: []string{"b.example", "c.example", "e.example"}, Options: []string{"four", "five", "six"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "resolv.conf")
			if err := os.WriteFile(path, []byte(row.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readResolvConf(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A FIFO that nobody writes to must not hang ADD.
func TestReadResolvConfFIFO(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readResolvConf(path); err == nil {
		t.Error("a FIFO was read")
	}
}
