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

// Manager gives containers the networks of a configuration directory, all of them or none: what a container runtime needs.
// It may be used concurrently.
//
// Of a container there is one operation at a time, also between processes that share [Client.StateDir]; containers do not
// wait for each other. Configuration and Status wait for no operation.
type Manager struct {
	o      ManagerOptions
	status chan *answer // one, taken while plugins are asked
}

// ManagerOptions are what a [Manager] works with and by.
type ManagerOptions struct {
	// Client runs the plugins; nil is the zero value. Where its Policy is nil, that of the directory counts, as it is when an
	// operation begins.
	Client *Client

	// Config holds the networks. The manager does not close it. If it is nil, every container names its networks.
	Config *config.Directory

	// IfName names the interface of network i of a container, counted from 0 without loopback. There is no default:
	// see [Numbered]. nil: every [Join] has a name.
	IfName func(i int, n *config.Network) string

	// Of the networks of the directory, a container that names none is attached to the first Max, in the order of their file
	// names; zero is all. Fewer than Min are not enough for a container, nor for Status.
	Min, Max int

	// Loopback attaches each container to the network [LoopbackNetwork] first, which brings lo up. It needs the plugin
	// loopback, as an executable or linked in.
	Loopback bool

	// Parallel runs the networks of a container beside each other. Otherwise they run one after another, as the
	// specification demands (1.1.0 section 2, "Lifecycle & Ordering"), and the first gets the default route.
	Parallel bool

	// StatusFor is how long an answer of Status is given again while the configuration is the same. Zero asks the plugins
	// each time.
	StatusFor time.Duration
}

// Numbered returns a naming of interfaces: prefix0, prefix1, …
func Numbered(prefix string) func(int, *config.Network) string {
	return func(i int, _ *config.Network) string { return prefix + strconv.Itoa(i) }
}

// NewManager returns a manager. An error is [cni.CodeInvalidConfig]: the options contradict each other.
func NewManager(o ManagerOptions) (*Manager, error) {
	switch {
	case o.Min < 0 || o.Max < 0 || o.Max > 0 && o.Min > o.Max:
		return nil, cni.Errorf(cni.CodeInvalidConfig, "at least %d and at most %d networks", o.Min, o.Max)
	case o.Min > 0 && o.Config == nil:
		return nil, cni.Errorf(cni.CodeInvalidConfig, "at least %d networks without a configuration folder", o.Min)
	}
	if o.Client == nil {
		o.Client = &Client{}
	}
	m := &Manager{o: o, status: make(chan *answer, 1)}
	m.status <- nil
	return m, nil
}

// LoopbackNetwork is the name of the network that [ManagerOptions.Loopback] attaches containers to.
const LoopbackNetwork = "cni-loopback"

// loopback is in version 0.4.0, which every plugin of that name supports.
func loopback() *config.Network {
	n, err := config.LoadBytes([]byte(`{"cniVersion":"0.4.0","name":"` + LoopbackNetwork + `","plugins":[{"type":"loopback"}]}`))
	if err != nil {
		panic(err)
	}
	n.BuiltIn = true
	return n
}

// Config returns what containers are attached to now: see [config.Directory.Snapshot]. It is empty without a directory.
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

// defaults returns the networks of a container that names none.
func (m *Manager) defaults(s *config.Snapshot) []*config.Network {
	if m.o.Max > 0 && len(s.Networks) > m.o.Max {
		return s.Networks[:m.o.Max]
	}
	return s.Networks
}

// enough returns an error with code where a directory has too few networks.
func (m *Manager) enough(s *config.Snapshot, code cni.Code) error {
	if n := len(m.defaults(s)); n < m.o.Min {
		return cni.Errorf(code, "%w: %d of at least %d networks", config.ErrNoConfig, n, m.o.Min)
	}
	return nil
}

// Setup attaches a container to its networks, or to none of them: where one fails, DEL runs for those before it, the last
// first, even if ctx has ended. What can be known before is checked for all before the first plugin starts, as
// [Client.Add] does. Should this process end meanwhile, [Manager.Recover] takes back what there is.
//
// Errors are those of [Client.Add]; too few networks are [config.ErrNoConfig] with [cni.CodeTryAgainLater].
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

// members returns the attachments that a request asks for, with loopback.
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
		members = append(members, membership{networks[i], Request{r.ID, joins[i].IfName, p, r.Replace}})
	}
	return members, nil
}

// network returns the network of a join.
func (m *Manager) network(s *config.Snapshot, j Join) (*config.Network, error) {
	if j.Network != nil {
		return j.Network, nil
	}
	if m.o.Config == nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "network %q: %w: the manager has no folder", j.Name, config.ErrNotFound)
	}
	return s.Network(j.Name)
}

// Attach attaches a container to one more network. It is [Client.Add] with the network of the directory, if j has none, and with
// what j has beside p; j has to name the interface.
func (m *Manager) Attach(ctx context.Context, id string, p Parameters, j Join) (*AttachmentResult, error) {
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

// Detach takes one attachment away, by its key alone: see [Client.Del]. Where there is no record, or none that can be read,
// DEL runs for the network as the directory has it now, without a namespace.
func (m *Manager) Detach(ctx context.Context, a cni.Attachment) error {
	return m.client(m.Config()).Del(ctx, a, Fallback{Network: m.configured(a.Network)})
}

// configured returns a network as the directory has it now; nil if it does not.
func (m *Manager) configured(name string) *config.Network {
	if name == LoopbackNetwork {
		return loopback()
	}
	n, _ := m.Config().Network(name)
	return n
}

// Remove takes away everything that is recorded of a container, the last first, past what fails, and joins the errors. It
// needs neither the configuration nor the namespace, and can be repeated. Nothing recorded is no error.
//
// unrecorded, which may be nil, is for what another library has attached before: DEL runs also for those of its networks
// that are not recorded, with its parameters.
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

// Sandbox returns what a container is attached to, as it is recorded: also after this process was started again. It is
// [ErrNoRecord] where nothing is. What DEL is due for is left out.
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

// recorded returns what is recorded of a container and in use, in the order of ADD.
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
	slices.SortStableFunc(recorded, func(a, b *records.Record) int { return a.Created.Compare(b.Created) })
	return recorded, nil
}

// Check runs CHECK for all attachments of a container and joins the errors: see [Client.Check]. Nothing recorded is
// [ErrNoRecord]. Networks below 0.4.0, which have no CHECK, are passed over.
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

// Recover deletes what is left of operations that were cut short, and of earlier boots: see [Client.Recover]. A runtime
// calls it when it starts, before its first Setup.
func (m *Manager) Recover(ctx context.Context, report func(Recovered)) error {
	return m.o.Client.Recover(ctx, report)
}
