package cli

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/unixsocket"
)

// TestClusterNode prints the state of the node that its agent reports.
func TestClusterNode(t *testing.T) {
	// Not parallel: it sets environment variables.
	dir := t.TempDir()
	socket := filepath.Join(dir, "agent.sock")
	t.Setenv("TENON_CLUSTER_DIR", dir)
	t.Setenv("TENON_CLUSTER_SOCKET", socket)
	err := local.New(local.Options{Dir: dir}).SetNode(local.Node{Name: "n1", Cluster: "production"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := unixsocket.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	var status agentcall.Status
	served := make(chan error, 1)
	go func() {
		served <- agentcall.Serve(t.Context(), l, slog.New(slog.DiscardHandler),
			func(context.Context, *agentcall.Request) *agentcall.Reply {
				return &agentcall.Reply{Status: &status}
			})
	}()
	for _, row := range []struct {
		name         string
		status       agentcall.Status
		stdout, warn string
	}{
		{"no contact yet", agentcall.Status{State: "disconnected", Problems: []string{"etcd: refused"}},
			"\nnode n1 of cluster production: disconnected, epoch 0, no contact yet\n",
			"warning: etcd: refused\n"},
		{"a pool with hold", agentcall.Status{State: "active", Epoch: 2, Contact: now.Add(-3 * time.Hour),
			Pools: []agentcall.PoolStatus{{Pool: "pods", Blocks: 2, Capacity: 122, Used: 7,
				Hold: now.Add(50*time.Hour - time.Minute)}}},
			"\nnode n1 of cluster production: active, epoch 2, last contact 3h ago\n" +
				"pool pods: 7 of 122 addresses used in 2 blocks, hold ends in 2d\n", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := &app{stdout: &output{file: temporary(t)}, stderr: newOutput(temporary(t))}
			status = row.status
			if err := a.printClusterNode(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := content(t, a.stdout.file) + content(t, a.stderr.file)
			if diff := cmp.Diff(row.stdout+row.warn, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
