package network_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// FIFOs in the state directories are refused: opening one would wait for a writer while the client
// holds the locks of the container.
func TestFIFOsAreRefused(t *testing.T) {
	t.Parallel()
	c2 := request("c2").Attachment("red")
	for _, row := range []struct {
		name string
		path func(r *rig) string
		call func(r *rig, n *config.Network) error
		want error
	}{
		{"record", func(r *rig) string { return recordPath(r.Client, c2) },
			func(r *rig, n *config.Network) error {
				_, err := r.Record(c2)
				return err
			}, statefile.ErrNotRegular},
		{"record, with a configuration for DEL", func(r *rig) string {
			return recordPath(r.Client, c2)
		}, func(r *rig, n *config.Network) error {
			return r.Del(t.Context(), c2, network.Fallback{Network: n})
		}, nil},
		{"record of another container", func(r *rig) string { return recordPath(r.Client, c2) },
			func(r *rig, n *config.Network) error {
				return r.Del(t.Context(), request("c1").Attachment("red"), network.Fallback{})
			}, nil},
		{"draft of a record", func(r *rig) string {
			dir, name := filepath.Split(recordPath(r.Client, c2))
			return filepath.Join(dir, "."+name)
		}, func(r *rig, n *config.Network) error {
			_, err := r.Add(t.Context(), n, request("c2"))
			return err
		}, statefile.ErrNotRegular},
		{"lock", func(r *rig) string {
			return filepath.Join(r.StateDir, "locks", "network-"+c2.Owner().Network())
		}, func(r *rig, n *config.Network) error {
			return r.Del(t.Context(), c2, network.Fallback{Network: n})
		}, statefile.ErrNotRegular},
		{"cached result", func(r *rig) string {
			return filepath.Join(r.CacheDir, "results", "red-c2-eth0")
		}, func(r *rig, n *config.Network) error {
			_, err := r.Record(c2)
			return err
		}, statefile.ErrNotRegular},
		{"versions of plugins", func(r *rig) string {
			return filepath.Join(r.StateDir, "versions.json")
		}, func(r *rig, n *config.Network) error {
			_, err := r.Negotiate(t.Context(),
				listWith(t, "0.4.0", "red", `"cniVersions":["0.4.0","1.1.0"]`, "first"))
			return err
		}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]script{"first": {}})
			n := list(t, "1.1.0", "red", "first")
			r.cache("other", "") // creates the directory
			r.add(n)
			path := row.path(r)
			_ = os.Remove(path)
			err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), unix.Mkfifo(path, 0o600))
			if err != nil {
				t.Fatal(err)
			}
			if err := row.call(r, n); !errors.Is(err, row.want) || row.want != nil &&
				!strings.Contains(err.Error(), "not a regular file") {
				t.Errorf("got %v (code %d), want %v", err, cni.CodeOf(err), row.want)
			}
			_, _ = r.List() // must return
		})
	}
}
