package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
)

// maxNamed is the number of containers that a message names.
const maxNamed = 8

// comeBack handles the return of a fenced node. It first marks all blocks as lost, so that the
// plugin allocates nothing. When no attachment uses an address of them any more, the node gives up
// what the store still shows and starts its next epoch. Until then the error wraps
// [registry.ErrFenced].
func (m *membership) comeBack(ctx context.Context) (registry.Session, error) {
	again := m.session.fence()
	affected, err := m.files.surrender(ctx)
	if err != nil {
		return registry.Session{}, err
	}
	if len(affected) > 0 {
		if !again {
			m.o.Log.Error("this node was fenced: its blocks are lost, and ADD is refused until the "+
				"affected containers have ended", "containers", affected)
		}
		return registry.Session{}, fmt.Errorf("%w, and %d addresses of lost blocks are in use: %s",
			registry.ErrFenced, len(affected), few(affected))
	}
	n, err := m.session.store().Nodes.Read(ctx, m.o.Node.Name)
	if err != nil {
		return registry.Session{}, err
	}
	if err := m.reclaimer.reclaimAll(ctx, n); err != nil {
		return registry.Session{}, err
	}
	s, err := m.session.prover().Nodes.Rejoin(ctx, m.session.document(), m.o.TTL)
	if err == nil {
		m.o.Log.Info("rejoined after fencing", "epoch", s.Node.Epoch)
	}
	return s, err
}

// few joins the first words of a list.
func few(list []string) string {
	if len(list) <= maxNamed {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:maxNamed], ", "), len(list)-maxNamed)
}
