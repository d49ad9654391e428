package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// Manager attaches containers to the networks of a configuration directory, to all of them or to
// none. Container runtimes embed it. It can be used concurrently.
//
// Each container has one operation at a time, also across processes that share [Client.StateDir];
// containers do not wait for each other. Config and Status wait for no operation.
type Manager struct {
	o      ManagerOptions
	status chan *answer // holds the last answer; empty while plugins run STATUS
}

// ManagerOptions are the settings of a [Manager].
type ManagerOptions struct {
	// Client runs the plugins; nil is the zero value. If its Policy is nil, each operation uses the
	// policy that the directory has when the operation begins.
	Client *Client

	// Config holds the networks. The manager does not close it. If it is nil, every request must
	// name its networks.
	Config *config.Directory

	// IfName returns the interface name for network i of a container, counted from 0 without
	// loopback. There is no default: see [Numbered]. If it is nil, every [Join] must have a name.
	IfName func(i int, n *config.Network) string

	// If a request names no networks, the container is attached to the first Max networks of the
	// directory, in the order of their file names; zero is all. If there are fewer than Min
	// networks, Setup and Status fail.
	Min, Max int

	// Loopback attaches each container to the network [LoopbackNetwork] first, which brings lo up.
	// It needs the plugin loopback, as a binary or linked in.
	Loopback bool

	// Parallel attaches a container to its networks at the same time. Otherwise ADDs run one after
	// another, as the specification demands (1.1.0 section 2, "Lifecycle & Ordering"), and the
	// first network gets the default route.
	Parallel bool

	// StatusFor is the time for which Status repeats its last answer if the configuration has not
	// changed. Zero runs STATUS of the plugins each time.
	StatusFor time.Duration
}

// Numbered returns a function for [ManagerOptions.IfName] that returns prefix0, prefix1, …
func Numbered(prefix string) func(int, *config.Network) string {
	return func(i int, _ *config.Network) string { return prefix + strconv.Itoa(i) }
}

// NewManager returns a manager. It returns [cni.CodeInvalidConfig] if the options contradict each
// other.
func NewManager(o ManagerOptions) (*Manager, error) {
	switch {
	case o.Min < 0 || o.Max < 0 || o.Max > 0 && o.Min > o.Max:
		return nil, cni.Errorf(cni.CodeInvalidConfig,
			"invalid number of networks: at least %d, at most %d", o.Min, o.Max)
	case o.Min > 0 && o.Config == nil:
		return nil, cni.Errorf(cni.CodeInvalidConfig,
			"at least %d networks required, but there is no configuration directory", o.Min)
	}
	if o.Client == nil {
		o.Client = &Client{}
	}
	m := &Manager{o: o, status: make(chan *answer, 1)}
	m.status <- nil
	return m, nil
}

// LoopbackNetwork is the name of the network of [ManagerOptions.Loopback].
const LoopbackNetwork = "cni-loopback"

// loopback has version 0.4.0, which every loopback plugin supports.
func loopback() *config.Network {
	n, err := config.LoadBytes([]byte(`{"cniVersion":"0.4.0","name":"` + LoopbackNetwork +
		`","plugins":[{"type":"loopback"}]}`))
	if err != nil {
		panic(err)
	}
	n.BuiltIn = true
	return n
}

// Config returns the current configuration: see [config.Directory.Snapshot]. It is empty if the
// manager has no directory.
func (m *Manager) Config() *config.Snapshot {
	if m.o.Config == nil {
		return &config.Snapshot{}
	}
	return m.o.Config.Snapshot()
}

// client returns the client for an operation.
func (m *Manager) client(s *config.Snapshot) *Client {
	c := *m.o.Client
	if c.Policy == nil {
		c.Policy = s.Policy
	}
	return &c
}

// defaults returns the networks for a request that names none.
func (m *Manager) defaults(s *config.Snapshot) []*config.Network {
	if m.o.Max > 0 && len(s.Networks) > m.o.Max {
		return s.Networks[:m.o.Max]
	}
	return s.Networks
}

// enough returns an error with the given code if the directory has too few networks.
func (m *Manager) enough(s *config.Snapshot, code cni.Code) error {
	if n := len(m.defaults(s)); n < m.o.Min {
		return cni.Errorf(code, "%w: found %d networks, need at least %d", config.ErrNoConfig, n,
			m.o.Min)
	}
	return nil
}

// Setup attaches a container to all of its networks or to none: if one fails, DEL runs for the
// networks before it in reverse order, even if ctx has ended. Before the first plugin starts, Setup
// runs the checks of [Client.Add] for all networks. If this process is killed, [Manager.Recover]
// cleans up.
//
// Setup returns the errors of [Client.Add]. If there are too few networks, it returns
// [config.ErrNoConfig] with [cni.CodeTryAgainLater].
func (m *Manager) Setup(ctx context.Context, r SandboxRequest) (*Sandbox, error) {
	s := m.Config()
	if r.Networks == nil {
		if err := m.enough(s, cni.CodeTryAgainLater); err != nil {
			return nil, err
		}
	}
	members, err := m.members(s, r)
	if err != nil {
		return nil, err
	}
	attachments, err := m.client(s).setup(ctx, r.ID, members, m.o.Parallel)
	if err != nil {
		return nil, err
	}
	return &Sandbox{ID: r.ID, Attachments: attachments}, nil
}

// members returns the requested attachments, including loopback.
func (m *Manager) members(s *config.Snapshot, r SandboxRequest) ([]membership, error) {
	joins := slices.Clone(r.Networks)
	if r.Networks == nil {
		for _, n := range m.defaults(s) {
			joins = append(joins, Join{Network: n})
		}
	}
	networks := make([]*config.Network, len(joins))
	for i, j := range joins {
		n, err := m.network(s, j)
		if err != nil {
			return nil, err
		}
		if j.IfName == "" && m.o.IfName != nil {
			joins[i].IfName = m.o.IfName(i, n)
		}
		networks[i] = n
	}
	var members []membership
	if m.o.Loopback {
		p := r.Parameters
		p.Capabilities = nil
		members = append(members, membership{loopback(), Request{r.ID, "lo", p, r.Replace}})
	}
	for i, p := range r.parameters(networks, joins) {
		members = append(members,
			membership{networks[i], Request{r.ID, joins[i].IfName, p, r.Replace}})
	}
	return members, nil
}

// network returns the network of a join.
func (m *Manager) network(s *config.Snapshot, j Join) (*config.Network, error) {
	if j.Network != nil {
		return j.Network, nil
	}
	if m.o.Config == nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig,
			"network %q: %w: the manager has no configuration directory", j.Name,
			config.ErrNotFound)
	}
	return s.Network(j.Name)
}

// Attach attaches a container to one more network: see [Client.Add]. The network is j.Network, or
// else the network j.Name of the directory. The arguments of j extend and override p; j must name
// the interface.
func (m *Manager) Attach(
	ctx context.Context, id string, p Parameters, j Join,
) (*AttachmentResult, error) {
	s := m.Config()
	n, err := m.network(s, j)
	if err != nil {
		return nil, err
	}
	request := Request{Container: id, IfName: j.IfName, Parameters: j.parameters(p)}
	result, err := m.client(s).Add(ctx, n, request)
	if err != nil {
		return nil, err
	}
	return &AttachmentResult{request.Attachment(n.Name), result}, nil
}

// Detach detaches a container from one network; it needs only the key of the attachment: see
// [Client.Del]. If the record is missing or unreadable, DEL runs with the network's current
// configuration and without a namespace.
func (m *Manager) Detach(ctx context.Context, a cni.Attachment) error {
	return m.client(m.Config()).Del(ctx, a, Fallback{Network: m.configured(a.Network)})
}

// configured returns a network in its current configuration, or nil if the directory does not
// contain it.
func (m *Manager) configured(name string) *config.Network {
	if name == LoopbackNetwork {
		return loopback()
	}
	n, _ := m.Config().Network(name)
	return n
}

// Remove detaches a container from all networks in reverse order, continues past errors and joins
// them. It needs neither the configuration nor the namespace, and can be repeated. A container
// without records is not an error.
//
// unrecorded, which may be nil, names networks that another library attached earlier: DEL runs also
// for networks without a record, with the parameters of the request.
func (m *Manager) Remove(ctx context.Context, id string, unrecorded *SandboxRequest) error {
	s := m.Config()
	var members []membership
	if unrecorded != nil {
		unrecorded := *unrecorded
		unrecorded.ID = id
		var err error
		if members, err = m.members(s, unrecorded); err != nil {
			return err
		}
	}
	if err := m.client(s).teardown(ctx, id, members, m.configured); err != nil {
		return fmt.Errorf("container %s: %w", id, err)
	}
	return nil
}

// Sandbox returns the recorded attachments of a container, also after a restart of this process. It
// returns [ErrNoRecord] if there are none. It leaves out attachments for which DEL is due.
func (m *Manager) Sandbox(ctx context.Context, id string) (*Sandbox, error) {
	recorded, err := m.recorded(ctx, id)
	if err != nil {
		return nil, err
	}
	s := &Sandbox{ID: id}
	for _, r := range recorded {
		s.Attachments = append(s.Attachments, AttachmentResult{r.Attachment, r.Result})
	}
	return s, nil
}

// recorded returns the records of a container that are in use, in the order of ADD.
func (m *Manager) recorded(ctx context.Context, id string) ([]*records.Record, error) {
	if err := cni.ValidateContainerID(id); err != nil {
		return nil, err
	}
	recorded, err := m.o.Client.recordsOf(ctx, id, m.configured)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", id, err)
	}
	recorded = slices.DeleteFunc(recorded, (*records.Record).LeftOver)
	if len(recorded) == 0 {
		return nil, cni.Errorf(cni.CodeUnknownContainer, "container %s: %w", id, ErrNoRecord)
	}
	slices.SortStableFunc(recorded,
		func(a, b *records.Record) int { return a.Created.Compare(b.Created) })
	return recorded, nil
}

// Check runs CHECK for all attachments of a container and joins the errors: see [Client.Check]. It
// returns [ErrNoRecord] if there are none. It skips networks below 0.4.0, which have no CHECK.
func (m *Manager) Check(ctx context.Context, id string) error {
	recorded, err := m.recorded(ctx, id)
	if err != nil {
		return err
	}
	c := m.client(m.Config())
	var errs []error
	for _, r := range recorded {
		if r.List.Version.Has(cni.Check) {
			errs = append(errs, c.Check(ctx, r.Attachment, m.configured(r.Attachment.Network)))
		}
	}
	return errors.Join(errs...)
}

// Recover cleans up interrupted operations and attachments of earlier boots: see [Client.Recover].
// A runtime calls it when it starts, before its first Setup.
func (m *Manager) Recover(ctx context.Context, report func(Recovered)) error {
	return m.o.Client.Recover(ctx, report)
}
