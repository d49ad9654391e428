package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
)

// errEarlierBoot means that the store still has a lease that another boot of this node took.
var errEarlierBoot = errors.New("the lease of an earlier boot has not ended yet")

// rival is a holder of the lease with this node's identity and another boot ID.
type rival struct {
	boot  string
	since time.Time // first seen
}

// rivalTimes is the number of lease times after which a rival is certainly alive.
const rivalTimes = 3

// excludeRival waits for the end of the lease that an earlier boot of this node took. If the lease
// is renewed meanwhile, another host runs with a copy of this node's files. The error then wraps
// [registry.ErrIdentity]. It returns the node before it joins, the zero Node if it is new.
func (m *membership) excludeRival(ctx context.Context) (registry.Node, error) {
	n, err := m.session.store().Nodes.Read(ctx, m.o.Node.Name)
	if errors.Is(err, registry.ErrNotFound) {
		return n, nil
	}
	if err != nil {
		return n, err
	}
	if n.Identity != m.identity.node().Identity || n.Boot == m.o.BootID || !n.Live || !alive(n) {
		m.rival = rival{}
		return n, nil
	}
	if m.rival.boot != n.Boot {
		m.rival = rival{n.Boot, time.Now()}
	}
	if time.Since(m.rival.since) < rivalTimes*m.o.TTL {
		return n, errEarlierBoot
	}
	return n, fmt.Errorf("%w: boot %s of the same identity keeps its lease", registry.ErrIdentity,
		n.Boot)
}
