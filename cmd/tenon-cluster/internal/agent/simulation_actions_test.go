package agent_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// actions are all kinds of steps.
func actions() []action {
	return []action{
		{"ADD", 14, true, (*simulation).add},
		{"ADD on all hosts", 8, true, (*simulation).addAll},
		{"DEL", 3, true, (*simulation).del},
		{"DEL of all containers", 6, true, (*simulation).delAll},
		{"start the agent", 8, true, (*simulation).start},
		{"kill the agent", 4, false, (*simulation).kill},
		{"stop the agent", 4, false, (*simulation).stop},
		{"reboot", 2, false, (*simulation).reboot},
		{"power off", 2, false, (*simulation).powerOff},
		{"release the node", 3, false, (*simulation).release},
		{"partition", 3, false, (*simulation).partition},
		{"faults", 4, false, (*simulation).faults},
		{"heal", 3, true, (*simulation).heal},
		{"deliver late requests", 2, false, (*simulation).deliver},
		{"revoke the lease", 2, false, (*simulation).revoke},
		{"snapshot", 7, true, (*simulation).snapshot},
		{"restore", 4, true, (*simulation).restore},
		{"restore, and ADD on all hosts", 5, true, (*simulation).restoreAndAdd},
		{"confirm --restored", 1, false, (*simulation).confirmRestored},
		{"confirm --all-nodes", 5, true, (*simulation).confirmAllNodes},
		{"confirm --node", 3, true, (*simulation).confirmNode},
		{"copy the directory", 2, false, (*simulation).copyDirectory},
		{"copy the disk", 2, false, (*simulation).copyDisk},
		{"copy the virtual machine", 2, false, (*simulation).copyMachine},
		{"keep the disk", 2, false, (*simulation).keepDisk},
		{"roll the disk back and boot", 2, false, (*simulation).rollBack},
		{"remove the directory", 1, false, (*simulation).removeDirectory},
		{"replace the directory by a copy", 1, false, (*simulation).replaceDirectory},
		{"remove a file", 2, false, (*simulation).removeFile},
		{"reset the node", 3, true, (*simulation).reset},
		{"the wall clock jumps", 2, false, (*simulation).jump},
		{"suspend", 2, false, (*simulation).suspend},
	}
}

func (s *simulation) add(h *host, n int) bool {
	if !s.mayAdd(h) || h.files == nil {
		return false
	}
	h.fill(1 + n%12)
	return true
}

func (s *simulation) addAll(_ *host, n int) bool {
	for _, h := range s.hosts {
		s.add(h, n)
	}
	return true
}

func (s *simulation) del(h *host, n int) bool {
	all := h.containers()
	if len(all) == 0 {
		return false
	}
	for range 1 + n%4 {
		if len(all) > 0 {
			i := n % len(all)
			h.end(all[i])
			all = slices.Delete(all, i, i+1)
		}
	}
	return true
}

func (s *simulation) delAll(h *host, _ int) bool {
	all := h.containers()
	for _, c := range all {
		h.end(c)
	}
	return len(all) > 0
}

// start starts the agent, or the host.
func (s *simulation) start(h *host, _ int) bool {
	if h.alive() || h.gone {
		return false
	}
	h.launch()
	return true
}

func (s *simulation) kill(h *host, _ int) bool {
	if !h.alive() || h.kept() {
		return false
	}
	h.halt(h.node.kill)
	return true
}

func (s *simulation) stop(h *host, _ int) bool {
	if !h.alive() || h.kept() {
		return false
	}
	h.halt(h.node.stop)
	return true
}

func (s *simulation) reboot(h *host, n int) bool {
	if !s.powerOff(h, n) {
		return false
	}
	h.launch()
	return true
}

func (s *simulation) powerOff(h *host, _ int) bool {
	if h.off || h.gone || h.copied || h.kept() {
		return false
	}
	h.powerOff()
	return true
}

// release is `tenon-cluster release --node`. The operator has switched the node off, and no copy of
// it exists. As in the model, no node is fenced in the lease time after a restore.
func (s *simulation) release(h *host, _ int) bool {
	if !h.off || s.pairOf(h) != nil || time.Since(s.restored) < leaseTime {
		return false
	}
	return s.releaseNode(h.name) == nil
}

func (s *simulation) releaseNode(name string) error {
	n, err := s.admin.Nodes.Read(s.Context(), name)
	switch {
	case err != nil:
		return err
	case n.Live:
		return errors.New("the node is alive")
	}
	if n.State != cluster.NodeFenced {
		if n.State != cluster.NodeSuspect {
			n, err = s.admin.Nodes.Suspect(s.Context(), n)
		}
		if err == nil {
			n, err = s.admin.Nodes.Fence(s.Context(), n, "off", "me")
		}
	}
	for done := false; err == nil && !done; {
		n, done, err = s.admin.Nodes.Reclaim(s.Context(), n, "released")
	}
	return err
}

func (s *simulation) partition(h *host, _ int) bool {
	if !h.running || h.cut || h.kept() {
		return false
	}
	h.cut = true
	h.client.Partition(true)
	s.disturbed(h)
	return true
}

func (s *simulation) faults(h *host, n int) bool {
	if !h.running || h.kept() {
		return false
	}
	h.faults(n)
	s.disturbed(h)
	return true
}

func (s *simulation) heal(h *host, _ int) bool {
	if !h.cut && !h.flaky {
		return false
	}
	h.steady()
	s.disturbed(h)
	return true
}

func (s *simulation) deliver(*host, int) bool {
	s.kv.Deliver()
	return true
}

// revoke lets etcd forget a lease too early. A node and its copy have one lease.
func (s *simulation) revoke(h *host, _ int) bool {
	if slices.ContainsFunc(s.hosts, func(o *host) bool { return o.name == h.name && o.kept() }) {
		return false
	}
	return s.kv.ExpireKey(cluster.NewKeys("c").Live(h.name))
}

func (s *simulation) snapshot(_ *host, n int) bool {
	s.backups[n%len(s.backups)] = s.kv.Backup()
	return true
}

// restore restores a snapshot. All connections break. The rules demand a witness, which may have to
// start afterwards, and may be slow. An outage often ends for all hosts at once, so partitions may end
// with it: nodes that have not seen the lost transactions then claim blocks before the witness looks.
func (s *simulation) restore(_ *host, n int) bool {
	for i := range s.backups {
		b := s.backups[(n+i)%len(s.backups)]
		if b == nil {
			continue
		}
		if all := s.witnesses(b); len(all) > 0 {
			s.restoreWith(b, all[n/8%len(all)], n)
			return true
		}
	}
	return false
}

func (s *simulation) restoreWith(b *memkv.Backup, w *host, n int) {
	s.note("restore revision %d at revision %d; witness %s", b.Revision(), s.kv.Revision(), w)
	if n%4 == 0 && w.alive() {
		w.halt(w.node.kill) // and start it afterwards
	}
	for _, h := range s.hosts {
		h.breaks.Add(1)
	}
	s.kv.Restore(b)
	s.restored = time.Now()
	w.keepFor(leaseTime)
	if !w.alive() {
		w.launch()
	}
	if len(s.pairs) == 0 {
		w.slow(time.Duration(n%5) * time.Second)
	}
	for _, h := range s.hosts {
		if n%2 == 0 && h.cut {
			h.steady()
			s.disturbed(h)
		}
	}
	for _, p := range s.pairs {
		p.restored = true
		p.double()
	}
}

// restoreAndAdd restores a snapshot while all nodes need addresses.
func (s *simulation) restoreAndAdd(h *host, n int) bool {
	return s.restore(h, n) && s.addAll(h, n)
}

func (s *simulation) confirmRestored(*host, int) bool {
	_, err := s.admin.Meta.NewNonce(s.Context())
	return err == nil
}

// confirmAllNodes is `tenon-cluster confirm`, what it asks of an operator, and then `confirm
// --all-nodes`: no copies run, the agents of all nodes run, and no container has an address that the
// answers name.
func (s *simulation) confirmAllNodes(*host, int) bool {
	snapshot, err := s.admin.Snapshot(s.Context())
	if err != nil || len(snapshot.Doubts()) == 0 {
		return false
	}
	for _, p := range slices.Clone(s.pairs) {
		s.decide(p, p.original)
	}
	for _, h := range s.hosts {
		if h.gone || h.copied {
			continue
		}
		h.steady()
		if !h.alive() {
			h.launch()
		}
	}
	pass(rivalTime) // they join, or end again
	for range 3 {
		if safe, err := s.review(); err != nil || safe {
			s.note("confirm: %v", err)
			return err == nil
		}
	}
	s.note("confirm: not all nodes have answered")
	return false
}

// review asks the nodes, ends the containers that their answers name, and confirms the nodes if there
// are none.
func (s *simulation) review() (safe bool, err error) {
	question, err := s.admin.Questions.Ask(s.Context())
	if err != nil {
		return false, err
	}
	pass(leaseTime / 2)
	answers, err := s.admin.Questions.Answers(s.Context(), question)
	if err != nil {
		return false, err
	}
	snapshot, err := s.admin.Snapshot(s.Context())
	if err != nil {
		return false, err
	}
	safe = len(snapshot.Check()) == 0
	for _, n := range snapshot.Nodes {
		answer, answered := answers[n.Name]
		trusts := n.Store == snapshot.Meta.Nonce || n.State == cluster.NodeFenced
		safe = safe && (trusts || answered && len(answer.Lost) == 0)
		for _, l := range answer.Lost {
			s.endBlock(n.Name, l.Block)
		}
	}
	if !safe {
		return false, nil
	}
	for _, n := range snapshot.Nodes {
		if n.Store != snapshot.Meta.Nonce && n.State != cluster.NodeFenced {
			_, updateErr := s.admin.Nodes.Update(s.Context(), n, func(n *cluster.Node) {
				n.Store = snapshot.Meta.Nonce
			})
			err = errors.Join(err, updateErr)
		}
	}
	if err == nil {
		err = s.admin.Meta.EndDoubt(s.Context(), snapshot.Meta.Nonce)
	}
	return true, err
}

// endBlock ends the containers of a node with addresses of a block.
func (s *simulation) endBlock(node string, b netip.Prefix) {
	for _, h := range s.hosts {
		if h.name != node || h.gone || h.copied {
			continue
		}
		for _, c := range h.containers() {
			if b.Contains(h.address(c)) {
				h.end(c)
			}
		}
	}
}

// confirmNode is `tenon-cluster confirm --node`. The operator has decided which of two processes goes
// on, has ended the containers of the other one, and has reset it.
func (s *simulation) confirmNode(h *host, n int) bool {
	if h.gone || h.copied {
		return false
	}
	p := s.pairOf(h)
	if p == nil {
		if h.alive() || !h.running || !h.undamaged() {
			return false // it runs, or does not need the command
		}
		if s.admin.Nodes.Settle(s.Context(), h.name) != nil {
			return false
		}
		h.launch()
		return true
	}
	if p.original.kept() || p.copied.kept() || p.original.alive() && p.copied.alive() {
		return false
	}
	s.decide(p, []*host{p.original, p.copied}[n%2])
	return true
}

// decide removes one host of a pair, and lets the other go on.
func (s *simulation) decide(p *pair, winner *host) {
	loser := p.copied
	if winner == loser {
		loser = p.original
	}
	s.remove(loser)
	if s.admin.Nodes.Settle(s.Context(), winner.name) == nil && !winner.off {
		winner.launch()
	}
}

// remove ends a host for ever.
func (s *simulation) remove(h *host) {
	h.halt(h.node.kill)
	h.gone = true
	h.life.Add(1)
	h.endAll()
	s.pairs = slices.DeleteFunc(s.pairs, func(p *pair) bool { return p.original == h || p.copied == h })
}

// maxHosts limits the copies.
const maxHosts = 8

// copyable reports whether a copy of the host can be made.
func (s *simulation) copyable(h *host) bool {
	return len(s.hosts) < maxHosts && !h.off && !h.gone && !h.copied && h.busy.Load() == 0 && h.undamaged()
}

// copyHost adds a copy of a host.
func (s *simulation) copyHost(h *host, boot string, asOriginal bool) *host {
	dir := fmt.Sprintf("%s-copy%d", h.dir, len(s.hosts))
	if err := copyTree(h.dir, dir, asOriginal); err != nil {
		s.note("%s: copy: %v", h, err)
		return nil
	}
	n := s.world.node(h.name)
	n.dir, n.boot = dir, boot
	c := s.host(n)
	c.last = 1000 * c.number
	s.note("%s is a copy of %s", c, h)
	return c
}

// copyDirectory starts an agent with a copy of a directory, in the same or another boot.
func (s *simulation) copyDirectory(h *host, n int) bool {
	if !s.copyable(h) {
		return false
	}
	boot := h.boot
	if n%2 == 0 {
		boot = "copied"
	}
	c := s.copyHost(h, boot, false)
	if c == nil {
		return false
	}
	c.copied = true
	c.launch()
	return true
}

// copyDisk starts another machine with a copy of a disk. The original has to replace its proof before
// it may be killed, or lose etcd or its lease.
func (s *simulation) copyDisk(h *host, _ int) bool {
	if !s.copyable(h) || !h.healthy() || s.pairOf(h) != nil || h.status().State != "active" {
		return false
	}
	if n, err := s.admin.Nodes.Read(s.Context(), h.name); err != nil || !n.Live {
		return false // it has lost its lease, and does not know it yet
	}
	c := s.copyHost(h, "other-disk", true)
	if c == nil {
		return false
	}
	s.pairs = append(s.pairs, &pair{original: h, copied: c})
	h.keepFor(rivalTime)
	c.launch()
	return true
}

// copyMachine copies a virtual machine with its memory. Until the two have found each other, both
// allocate from the same blocks.
func (s *simulation) copyMachine(h *host, _ int) bool {
	if !s.copyable(h) || !h.healthy() || s.pairOf(h) != nil || h.status().State != "active" {
		return false
	}
	c := s.copyHost(h, h.boot, true)
	if c == nil {
		return false
	}
	p := &pair{original: h, copied: c}
	s.pairs = append(s.pairs, p)
	h.keepFor(rivalTime)
	c.launch()
	c.keepFor(rivalTime)
	p.double()
	return true
}

// keepDisk keeps a copy of the disk.
func (s *simulation) keepDisk(h *host, _ int) bool {
	if !s.copyable(h) {
		return false
	}
	disk := fmt.Sprintf("%s-disk-%d", h.dir, len(s.log))
	if err := copyTree(h.dir, disk, false); err != nil {
		s.note("%s: copy: %v", h, err)
		return false
	}
	h.disk = disk
	return true
}

// rollBack boots the host with an earlier state of its disk.
func (s *simulation) rollBack(h *host, _ int) bool {
	if h.disk == "" || h.gone || h.kept() || h.busy.Load() > 0 || s.pairOf(h) != nil {
		return false
	}
	h.powerOff()
	err := os.RemoveAll(h.dir)
	if err == nil {
		err = copyTree(h.disk, h.dir, true)
	}
	if err != nil {
		s.Errorf("%s: %v", h, err)
		return false
	}
	h.launch()
	return true
}

// replaceDirectory replaces the directory by a copy of its files, also under a running agent.
func (s *simulation) replaceDirectory(h *host, n int) bool {
	if !s.copyable(h) || h.kept() {
		return false
	}
	from := h.disk
	if from == "" || n%2 == 0 {
		from = h.dir
	}
	to := fmt.Sprintf("%s-new-%d", h.dir, len(s.log))
	err := copyTree(from, to, false)
	if err == nil {
		err = os.RemoveAll(h.dir)
	}
	if err == nil {
		err = os.Rename(to, h.dir)
	}
	if err != nil {
		s.Errorf("%s: %v", h, err)
	}
	return err == nil
}

// reset is what an operator does with a node that can no longer join: end its containers, reset it,
// and release it. No copy of it may run.
func (s *simulation) reset(h *host, _ int) bool {
	if h.gone || h.copied || !h.running || h.alive() || s.pairOf(h) != nil {
		return false
	}
	h.powerOff()
	if err := os.RemoveAll(h.dir); err != nil {
		s.Error(err)
		return false
	}
	pass(2 * leaseTime) // of its lease, and after a restore
	if err := s.releaseNode(h.name); err != nil {
		s.note("%s: release: %v", h, err)
	} else if err := s.admin.Nodes.Delete(s.Context(), h.name); err != nil {
		s.note("%s: leave: %v", h, err)
	}
	h.launch()
	return true
}

func (s *simulation) jump(h *host, n int) bool {
	h.skew.Add(int64(time.Duration(n%7200-3600) * time.Second))
	return true
}

func (s *simulation) suspend(h *host, n int) bool {
	if h.kept() {
		return false
	}
	h.asleep.Add(int64(time.Duration(n%7200) * time.Second))
	return true
}

// removeDirectory removes the directory, also under a running agent.
func (s *simulation) removeDirectory(h *host, _ int) bool {
	if h.gone || h.kept() || h.busy.Load() > 0 {
		return false
	}
	return os.RemoveAll(h.dir) == nil
}

// removeFile removes one file.
func (s *simulation) removeFile(h *host, n int) bool {
	if h.gone || h.kept() || h.busy.Load() > 0 {
		return false
	}
	names := []string{"node.json", "place", "contact", "intents", "pools/pods.json"}
	name := names[n%len(names)]
	s.note("%s: remove %s", h, name)
	return os.RemoveAll(filepath.Join(h.dir, name)) == nil
}
