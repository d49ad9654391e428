package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/settings"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/usage"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ops/table"
)

// Patience with a member of etcd and with the agent.
const (
	memberPatience = 3 * time.Second
	agentPatience  = 2 * time.Second
)

// statusReport is the output of status.
type statusReport struct {
	Cluster   string         `json:"cluster"`
	Etcd      *Health        `json:"etcd,omitempty"`
	Nodes     map[string]int `json:"nodes"` // by state
	Unheard   []string       `json:"unheard,omitempty"`
	Doubt     *cluster.Doubt `json:"doubt,omitempty"`
	Bytes     int64          `json:"bytes"` // of keys and values
	Node      *nodeReport    `json:"node,omitempty"`
	Pools     []poolUse      `json:"pools"`
	onlyLocal bool
}

// nodeReport is this node in the output of status.
type nodeReport struct {
	Name     string                 `json:"name"`
	State    string                 `json:"state,omitempty"`
	Epoch    uint64                 `json:"epoch"`
	Contact  time.Time              `json:"contact,omitzero"`
	Mode     string                 `json:"mode,omitempty"`
	MTU      int                    `json:"mtu,omitempty"`
	Agent    bool                   `json:"agent"` // it answers
	Problems []string               `json:"problems,omitempty"`
	Pools    []agentcall.PoolStatus `json:"pools"`
}

func (a *app) status() *cobra.Command {
	onlyLocal := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show etcd, the nodes, this node and the use of pools",
		Long: `Shows the members of etcd, its leader, quorum and version, the number of nodes by
state, this node with its agent, and how full each pool is. The forecast needs
samples of at least a day, which the agent of this node collects. The exit status
is 1 if etcd does not answer; the state of this node is shown in any case. With
--local, asks this node's agent and not etcd; the exit status is 1 if it does not
answer.`,
		Example: a.examples("status", "status --json", "status --local"),
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := settings.Load(cmd.Flags(), a.Lookup)
			if err != nil {
				return err
			}
			return a.showStatus(cmd.Context(), conf, onlyLocal)
		},
	}
	cmd.Flags().BoolVar(&onlyLocal, "local", false, "show only this node, without etcd")
	return a.jsonFlag(cmd)
}

// showStatus prints the state of this node also if it cannot connect to etcd.
func (a *app) showStatus(ctx context.Context, conf settings.Settings, onlyLocal bool) error {
	r := &statusReport{Cluster: conf.Cluster, Nodes: map[string]int{}, Pools: []poolUse{},
		onlyLocal: onlyLocal}
	r.Node = readNode(ctx, &session{settings: conf})
	var problem error
	switch {
	case !onlyLocal:
		problem = a.connected(ctx, conf, func(s *session) error { return a.readCluster(ctx, s, r) })
	case r.Node == nil || !r.Node.Agent:
		problem = hint(errors.New("the agent of this node does not answer at "+conf.Socket),
			"start it: systemctl start tenon-cluster.service")
	}
	if err := a.print(r, func() error { return a.printStatus(r) }); err != nil {
		return err
	}
	a.json = false // the report is printed already
	return a.explain(ctx, conf, problem)
}

// readCluster reads what etcd knows.
func (a *app) readCluster(ctx context.Context, s *session, r *statusReport) error {
	health, err := s.store.Health(ctx)
	if err != nil {
		return err
	}
	r.Etcd = &health
	if !health.Quorum {
		return hint(errors.New("etcd has no quorum"),
			"start members that are down until more than half of them run",
			"nodes go on with the addresses of their own blocks")
	}
	snapshot, err := s.registry.Snapshot(ctx)
	if errors.Is(err, registry.ErrNotFound) {
		return hint(fmt.Errorf("cluster %s does not exist in etcd", s.settings.Cluster),
			"create it: "+a.name+" init")
	}
	if err != nil {
		return err
	}
	for _, n := range snapshot.Nodes {
		r.Nodes[string(n.State)]++
		if !n.Live && (n.State == cluster.NodeActive || n.State == cluster.NodeDraining) {
			r.Unheard = append(r.Unheard, n.Name)
		}
	}
	r.Bytes, r.Doubt = snapshot.Size, snapshot.Doubt
	r.Pools = a.poolUses(snapshot, s)
	return nil
}

// readNode reads the state of this node from its agent, or else from its files. It returns nil if
// no agent has ever run here.
func readNode(ctx context.Context, s *session) *nodeReport {
	ask, cancel := context.WithTimeout(ctx, agentPatience)
	defer cancel()
	r := &nodeReport{Name: s.settings.Node, Pools: []agentcall.PoolStatus{}}
	reply, err := agentcall.Call(ask, s.settings.Socket, agentcall.Request{Verb: agentcall.Report})
	if err == nil && reply.Status != nil {
		st := reply.Status
		r.Name, r.State, r.Epoch, r.Contact = st.Node, st.State, st.Epoch, st.Contact
		r.Mode, r.MTU, r.Problems, r.Agent = st.Mode, st.MTU, st.Problems, true
		r.Pools = append(r.Pools, st.Pools...)
		return r
	}
	store := s.local()
	node, nodeErr := store.Node()
	if errors.Is(nodeErr, fs.ErrNotExist) {
		return nil
	}
	r.Problems = append(r.Problems, fmt.Sprintf("the agent does not answer: %v", err))
	if nodeErr != nil {
		r.Problems = append(r.Problems, nodeErr.Error())
		return r
	}
	r.Name, r.Epoch, r.MTU = node.Name, node.Epoch, node.MTU
	if node.Restored != "" {
		r.Problems = append(r.Problems, "restored: this node distrusts the store: "+node.Restored)
	}
	r.Contact, _ = store.Contact()
	pools, err := survey(ctx, store)
	if err != nil {
		r.Problems = append(r.Problems, err.Error())
	}
	r.Pools = append(r.Pools, pools...)
	return r
}

// survey describes the pools in the files of this node.
func survey(ctx context.Context, store *local.Store) (list []agentcall.PoolStatus, err error) {
	names, err := store.Pools()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, withPool(ctx, store, name, func(p *local.Pool) error {
			blocks, shared, err := p.Usage(ctx)
			st := agentcall.PoolStatus{Pool: name, Blocks: len(blocks), Used: uint64(len(shared))}
			for _, b := range blocks {
				st.Capacity += b.Capacity
				st.Used += b.Used
			}
			if h := p.State.Hold; h != nil {
				st.Hold = h.Wall
			}
			list = append(list, st)
			return err
		}))
	}
	return list, errors.Join(errs...)
}

func (a *app) printStatus(r *statusReport) error {
	t := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	switch e := r.Etcd; {
	case r.onlyLocal:
	case e != nil:
		line("etcd", "%s", e.text())
		for _, w := range append(e.memberProblems(), e.Warnings...) {
			line("", "warning: %s", w)
		}
	default:
		line("etcd", "no answer")
	}
	if len(r.Nodes) > 0 {
		line("nodes", "%s", r.nodesText())
	}
	if d := r.Doubt; d != nil {
		line("store", "restored or replaced, and not confirmed: %s: %s", d.Author, d.Cause)
	}
	if n := r.Node; n != nil {
		line("node", "%s", n.text(a.Now()))
		for _, p := range n.Problems {
			line("", "problem: %s", p)
		}
		for _, p := range n.Pools {
			line("", "pool %s: %s", p.Pool, localPool(p, a.Now()))
		}
	}
	for _, u := range r.Pools {
		line("pool", "%s", u.text())
	}
	return t.Flush()
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") {
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (h *Health) text() string {
	parts := []string{plural(len(h.Members), "member")}
	if h.Leader != "" {
		parts = append(parts, "leader "+h.Leader)
	}
	quorum := "no"
	if h.Quorum {
		quorum = "yes"
	}
	parts = append(parts, "quorum "+quorum)
	if h.Version != "" {
		parts = append(parts, "version "+h.Version)
	}
	if h.Size > 0 {
		parts = append(parts, fmt.Sprintf("database %.1f MB", float64(h.Size)/1e6))
	}
	for _, alarm := range h.Alarms {
		parts = append(parts, "alarm "+alarm)
	}
	return strings.Join(parts, ", ")
}

// memberProblems lists the members that do not answer.
func (h *Health) memberProblems() (list []string) {
	for _, m := range h.Members {
		if m.Error != "" {
			list = append(list, fmt.Sprintf("member %s does not answer", m.Name))
		}
	}
	return list
}

func (r *statusReport) nodesText() string {
	var parts []string
	for _, state := range []cluster.NodeState{cluster.NodeActive, cluster.NodeDraining,
		cluster.NodeSuspect, cluster.NodeFenced} {
		if n := r.Nodes[string(state)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	const shown = 5
	if names := r.Unheard; len(names) > shown {
		parts = append(parts, fmt.Sprintf("no contact to %d of them", len(names)))
	} else if len(names) > 0 {
		parts = append(parts, "no contact to "+strings.Join(names, ", "))
	}
	return strings.Join(parts, ", ")
}

func (n *nodeReport) text(now time.Time) string {
	parts := []string{strings.TrimSpace(n.Name + " " + n.State), fmt.Sprintf("epoch %d", n.Epoch)}
	if n.Contact.IsZero() {
		parts = append(parts, "no contact yet")
	} else {
		parts = append(parts, "last contact "+ipam.FormatAge(now.Sub(n.Contact))+" ago")
	}
	if n.Mode != "" {
		parts = append(parts, "routes "+n.Mode)
	}
	if n.MTU > 0 {
		parts = append(parts, fmt.Sprintf("MTU %d", n.MTU))
	}
	return strings.Join(parts, ", ")
}

func localPool(p agentcall.PoolStatus, now time.Time) string {
	hold := "hold off"
	switch left := p.Hold.Sub(now); {
	case p.Hold.IsZero():
	case left <= 0:
		hold = "hold expired"
	default:
		hold = "hold " + ipam.FormatAge(left)
	}
	return fmt.Sprintf("%s, used %d/%d, %s", plural(p.Blocks, "block"), p.Used, p.Capacity, hold)
}

func (u *poolUse) text() string {
	parts := []string{fmt.Sprintf("%s %s  blocks %d/%d", u.Name, u.Range, u.Claimed, u.Total)}
	if u.Cooling > 0 {
		parts = append(parts, fmt.Sprintf("cooling %d", u.Cooling))
	}
	if u.Addresses > 0 {
		parts = append(parts, fmt.Sprintf("shared addresses %d", u.Addresses))
	}
	parts = append(parts, u.Forecast.text(uint64(u.Claimed) >= u.Total))
	return strings.Join(parts, "  ")
}

// forecast is a forecast as JSON.
type forecast struct {
	usage.Forecast
	SampledHours float64 `json:"sampledHours"`
	FullInDays   float64 `json:"fullInDays,omitempty"` // absent: the pool does not grow
}

// forecast returns the forecast of a pool from the samples of this node, or nil without enough.
func (a *app) forecast(s *session, u *poolUse) *forecast {
	samples, err := usage.Read(s.settings.Dir)
	if err != nil {
		a.warn("no forecast: %v", err)
		return nil
	}
	f, ok := usage.Of(samples, u.Name, uint64(u.Claimed), u.Total)
	if !ok {
		return nil
	}
	return &forecast{f, f.Over.Hours(), f.Full.Hours() / 24}
}

func (f *forecast) text(full bool) string {
	switch {
	case full:
		return "full"
	case f == nil:
		return "no forecast yet"
	case f.Full == 0:
		return "does not grow"
	}
	return fmt.Sprintf("full in %.0f d at current growth", f.FullInDays)
}

// table writes rows to standard output.
func (a *app) table(rows [][]string) error { return table.Write(a.Stdout, rows) }
