package network

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// KeepSandboxes says which containers are in use. Whatever is not is deleted, so none of it is guessed.
type KeepSandboxes struct {
	// IDs is the complete list of the containers that this runtime has. nil is refused with [cni.CodeInvalidConfig], as it
	// would mean that there are none; an empty list says so.
	IDs []string

	// Recorded, instead of IDs, keeps all that is recorded as attached: see [Keep.Recorded].
	Recorded bool

	// Since is when the making of IDs began: see [Keep.Since]. Zero is the begin of GC.
	Since time.Time

	// AllRuntimes judges also what other runtimes have attached: see [Keep.AllRuntimes].
	AllRuntimes bool
}

// GC deletes the attachments of containers that are not in use, in all networks: the networks of the directory, and those
// that only the records of this runtime still name. It goes on past errors and joins them: see [Client.GC].
// If the records cannot be listed, it does nothing.
//
// Plugins are told to keep, of each container in IDs, what is recorded of it, and the interface that
// [ManagerOptions.IfName] gives it. An attachment under another name whose record is lost is not in use.
func (m *Manager) GC(ctx context.Context, k KeepSandboxes) error {
	if k.IDs == nil && !k.Recorded {
		return cni.Errorf(cni.CodeInvalidConfig, "GC without the list of containers").WithDetails("an empty list says that none is in use")
	}
	if k.Since.IsZero() {
		k.Since = time.Now()
	}
	s := m.Config()
	c := m.client(s)
	found, err := c.scan("")
	if err != nil {
		return err // IDs alone do not say which interfaces the containers have
	}
	recorded, _ := readable(found) // GC of its network reports what cannot be read
	var errs []error
	for _, n := range m.known(s, recorded, k.AllRuntimes) {
		errs = append(errs, c.GC(ctx, n, m.keep(s, n, recorded, k)))
	}
	return errors.Join(errs...)
}

// known returns the networks that GC is about.
func (m *Manager) known(s *config.Snapshot, recorded []*records.Record, allRuntimes bool) []*config.Network {
	networks := slices.Clone(s.Networks)
	mine := slices.DeleteFunc(slices.Clone(recorded), func(r *records.Record) bool { return r.Runtime != m.o.Client.Runtime && !allRuntimes })
	for _, n := range Recorded(publicRecords(mine)) {
		if !slices.ContainsFunc(networks, func(other *config.Network) bool { return other.Name == n.Name }) {
			networks = append(networks, n)
		}
	}
	slices.SortFunc(networks, func(a, b *config.Network) int { return cmp.Compare(a.Name, b.Name) })
	return networks
}

// keep returns what k says of one network.
func (m *Manager) keep(s *config.Snapshot, n *config.Network, recorded []*records.Record, k KeepSandboxes) Keep {
	keep := Keep{Recorded: k.Recorded, Since: k.Since, AllRuntimes: k.AllRuntimes}
	if k.Recorded {
		return keep
	}
	keep.Attachments = []cni.ValidAttachment{}
	for _, r := range recorded {
		if r.Attachment.Network == n.Name && !r.LeftOver() && slices.Contains(k.IDs, r.Attachment.Container) {
			keep.Attachments = append(keep.Attachments, cni.ValidAttachment{ContainerID: r.Attachment.Container, IfName: r.Attachment.IfName})
		}
	}
	if i := slices.Index(m.defaults(s), n); i >= 0 && m.o.IfName != nil {
		for _, id := range k.IDs {
			keep.Attachments = append(keep.Attachments, cni.ValidAttachment{ContainerID: id, IfName: m.o.IfName(i, n)})
		}
	}
	return keep
}
