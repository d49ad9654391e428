package watch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/internal/ops/watch"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// drift is something that another program does to attachments.
type drift struct {
	name   string
	damage func(*host)
	cause  string // in the event
}

func ip(command string) func(*host) {
	return func(h *host) { h.Host.Command("ip", strings.Fields(command)...) }
}

func sysctl(setting string) func(*host) {
	return func(h *host) { h.Host.Command("sysctl", "-qw", setting) }
}

func nft(command string) func(*host) { return func(h *host) { h.Host.Command("nft", command) } }

func inside(command string) func(*host) {
	return func(h *host) { h.Container("c0").Command("ip", strings.Fields(command)...) }
}

// TestRepairs: whatever another program deletes is restored exactly as it was, with the cause.
func TestRepairs(t *testing.T) {
	t.Parallel()
	for _, group := range [][]drift{
		{
			{"ruleset", nft("flush ruleset"), "flushed table inet tenon"},
			{"address", ip("addr del 10.1.0.1/16 dev br0"), "deleted address 10.1.0.1/16 dev br0"},
			{"route in the container", inside("route del default"), "deleted route default dev eth0 in c0"},
			{"link down", ip("link set br0 down"), "set link br0 down"},
			{"forwarding", sysctl("net.ipv4.ip_forward=0"), "forwarding of IPv4 was turned off"},
			{"forwarding of IPv6", sysctl("net.ipv6.conf.all.forwarding=0"),
				"forwarding of IPv6 was turned off"},
		}, {
			{"table", nft("delete table inet tenon"), "flushed table inet tenon"},
			{"bridge", ip("link del br0"), "deleted link br0"},
			{"address in the container", inside("addr flush dev eth0 scope global"),
				"deleted address 10.1.0.2/16 dev eth0 in c0"},
		}, {
			{"element", nft("delete element inet tenon masq4 { 10.1.0.2 }"), "deleted 1 element of table inet tenon"},
			{"replaced bridge", func(h *host) {
				h.Host.Batch("link del br0", "link add br0 type bridge", "link set br0 up")
			}, "deleted link br0"},
			{"interface of the container down", inside("link set eth0 down"), "set link eth0 in c0 down"},
		}, {
			{"rules", nft("flush table inet tenon"), "deleted a rule of table inet tenon"},
			{"guard", nft("delete table bridge tenon"), "flushed table bridge tenon"},
			{"port", func(h *host) { ip("link set " + h.port() + " nomaster")(h) }, "from its bridge"},
		},
	} {
		t.Run(group[0].name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, "nftables")
			h.addMany(2)
			before := h.state()
			h.watch(nil)
			if events := h.take(); len(events) > 0 {
				t.Errorf("events at the start: %+v", events)
			}
			for _, d := range group {
				d.damage(h)
				events := h.waitFor(func(e watch.Event) bool {
					return strings.Contains(e.Cause, d.cause) && e.Restored > 0 && e.Restored == e.Lost
				})
				for _, e := range events {
					if e.Problem != "" {
						t.Errorf("%s: %+v", d.name, e)
					}
				}
				h.wantState(before)
			}
			for _, c := range []string{"c0", "c1"} {
				if err := h.check(c); err != nil {
					t.Errorf("CHECK of %s: %v", c, err)
				}
			}
		})
	}
}

// port returns the host-side veth of a container.
func (h *host) port() string {
	out := h.Host.Command("ip", "-br", "link", "show", "type", "veth")
	name, _, _ := strings.Cut(out, "@")
	return name
}

// TestProcess: an event names the process that deleted rules.
func TestProcess(t *testing.T) {
	t.Parallel()
	h := newHost(t, "nftables")
	h.addMany(1)
	h.watch(nil)
	nft("flush ruleset")(h)
	events := h.waitFor(func(e watch.Event) bool { return e.Restored > 0 })
	if e := events[len(events)-1]; e.Process != "nft" || e.PID == 0 || !strings.HasPrefix(e.Cause,
		fmt.Sprintf("nft (PID %d", e.PID)) {
		t.Errorf("%+v", e)
	}
}

// TestStart: objects deleted while no watcher ran are restored at once.
func TestStart(t *testing.T) {
	t.Parallel()
	h := newHost(t, "nftables")
	h.addMany(2)
	before := h.state()
	nft("flush ruleset")(h)
	ip("link del br0")(h)
	h.watch(nil)
	if events := h.take(); len(events) != 1 || events[0].Cause != "found at the start" ||
		events[0].Attachments != 2 {
		t.Errorf("events: %+v", events)
	}
	h.wantState(before)
}

// TestDryRun: a dry run reports and changes nothing, and reports the same drift once.
func TestDryRun(t *testing.T) {
	t.Parallel()
	h := newHost(t, "nftables")
	h.addMany(2)
	ip("addr del 10.1.0.1/16 dev br0")(h)
	nft("delete element inet tenon masq4 { 10.1.0.2 }")(h)
	before := h.state()
	reload := make(chan struct{})
	h.watch(func(o *watch.Options) { o.DryRun, o.Reload = true, reload })
	reload <- struct{}{}
	reload <- struct{}{} // the look after the first one has ended
	events := h.take()
	if len(events) != 1 || events[0].Lost < 2 || events[0].Restored != 0 || !events[0].DryRun {
		t.Errorf("events: %+v", events)
	}
	if diff := testnet.Diff(before, h.state()); diff != "" {
		t.Error(diff)
	}
}

// TestIPTables: rules of the iptables backend are restored, in the variant that this host uses.
func TestIPTables(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables-restore"))
	h := newHost(t, "iptables")
	h.addMany(1)
	h.watch(nil)
	h.Host.Command("sh", "-c", "iptables -t nat -F && iptables -t filter -F")
	h.waitFor(func(e watch.Event) bool { return e.Restored > 0 })
	testnet.Eventually(t, func() error { return h.check("c0") })
}

// TestUnrepairable: an interface that was deleted in its container is reported once, with a hint,
// and the others are repaired.
func TestUnrepairable(t *testing.T) {
	t.Parallel()
	h := newHost(t, "nftables")
	h.addMany(2)
	reload := make(chan struct{})
	h.watch(func(o *watch.Options) { o.Reload = reload })
	inside("link del eth0")(h)
	h.waitFor(func(e watch.Event) bool {
		return e.Attachment == "pods/c0/eth0" && strings.Contains(e.Problem, "cannot be repaired") &&
			strings.Contains(e.Hint, "tenon del pods/c0/eth0")
	})
	reload <- struct{}{}
	reload <- struct{}{}
	for _, e := range h.take() {
		if e.Problem != "" {
			t.Errorf("reported again: %+v", e)
		}
	}
	nft("flush ruleset")(h)
	h.waitFor(func(e watch.Event) bool { return e.Restored > 0 })
	must(t, h.check("c1"))
}

// TestOtherPlugin: policy rules and routes that plugin sbr made are not restored, but reported,
// with the plugin. The deletion of a rule that no plugin made is not.
func TestOtherPlugin(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ damage, problem string }{
		{"rule del from 10.1.0.2", "rule"},
		{"route flush table 100", "expected a route"},
	} {
		t.Run(row.damage, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, "nftables", `,{"type":"sbr"}`)
			h.addMany(1)
			h.watch(nil)
			inside("rule add from 10.7.7.7 lookup 77")(h)
			inside("rule del from 10.7.7.7 lookup 77")(h)
			// The repair of this is not before the look at the rule.
			nft("delete element inet tenon masq4 { 10.1.0.2 }")(h)
			for _, e := range h.waitFor(func(e watch.Event) bool { return e.Restored > 0 }) {
				if e.Problem != "" {
					t.Errorf("foreign rule: %+v", e)
				}
			}
			inside(row.damage)(h)
			h.waitFor(func(e watch.Event) bool {
				return e.Attachment == "pods/c0/eth0" && strings.Contains(e.Problem, row.problem) &&
					strings.HasPrefix(e.Problem, "sbr cannot restore this: ") &&
					strings.Contains(e.Hint, "tenon del pods/c0/eth0")
			})
		})
	}
}

// TestFirstAttachment: attachments are noticed even if the host had none, and no directory for
// their records, when the program started.
func TestFirstAttachment(t *testing.T) {
	t.Parallel()
	h := newHost(t, "nftables")
	h.watch(nil)
	h.addMany(1)
	before := h.state()
	testnet.Eventually(t, func() error { // until the record has been read
		nft("flush ruleset")(h)
		if h.take() == nil {
			return errors.New("no event")
		}
		return nil
	})
	h.wantState(before)
}

// TestRecordsRemoved: without record, nothing is repaired, and nothing is reported.
func TestRecordsRemoved(t *testing.T) {
	t.Parallel()
	h := newHost(t, "nftables")
	h.addMany(2)
	reload := make(chan struct{})
	h.watch(func(o *watch.Options) { o.Reload = reload })
	must(t, os.Remove(filepath.Join(h.dir, "state", "records", string(key("c0").Owner())+".json")))
	nft("flush ruleset")(h)
	events := h.waitFor(func(e watch.Event) bool { return e.Restored > 0 })
	if n := events[len(events)-1].Attachments; n != 1 {
		t.Errorf("repaired %d attachments", n)
	}
	if rules := h.Host.Command("nft", "list", "ruleset"); strings.Contains(rules, "10.1.0.2") {
		t.Errorf("rules without record:\n%s", rules)
	}
}

// TestOwnChanges: ADD and DEL are no drift.
func TestOwnChanges(t *testing.T) {
	t.Parallel()
	h := newHost(t, "nftables")
	h.addMany(1)
	reload := make(chan struct{})
	h.watch(func(o *watch.Options) { o.Reload = reload })
	h.storm(8, 3, nil)
	reload <- struct{}{}
	reload <- struct{}{}
	if events := h.take(); len(events) > 0 {
		t.Errorf("events: %+v", events)
	}
}

// storm attaches and detaches containers in parallel, and leaves one attached for each worker.
func (h *host) storm(workers, rounds int, during func()) {
	h.t.Helper()
	for i := range workers {
		h.Container(fmt.Sprintf("w%d", i)) // the host is not for several goroutines
	}
	var running sync.WaitGroup
	for i := range workers {
		running.Go(func() {
			name := fmt.Sprintf("w%d", i)
			for round := range rounds {
				if err := h.add(name); err != nil {
					h.t.Errorf("ADD of %s: %v", name, err)
					return
				}
				if round == rounds-1 {
					return
				}
				if err := h.del(name); err != nil {
					h.t.Errorf("DEL of %s: %v", name, err)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { running.Wait(); close(ended) }()
	for {
		select {
		case <-ended:
			return
		default:
			if during != nil {
				during()
			} else {
				<-ended
			}
		}
	}
}

// TestFlushDuringOperations: rules are flushed while 16 workers attach and detach. In the end all
// attachments are complete, and DEL leaves nothing.
func TestFlushDuringOperations(t *testing.T) {
	t.Parallel()
	h := newHost(t, "nftables")
	h.addMany(1)
	reload := make(chan struct{})
	h.watch(func(o *watch.Options) { o.Reload = reload })
	flushes := 0
	h.storm(16, 3, func() {
		if flushes < 3 {
			nft("flush ruleset")(h)
			flushes++
			h.waitFor(func(e watch.Event) bool { return e.Restored > 0 })
		}
	})
	names := []string{"c0"}
	for i := range 16 {
		names = append(names, fmt.Sprintf("w%d", i))
	}
	reload <- struct{}{}
	for _, name := range names {
		testnet.Eventually(t, func() error { return h.check(name) })
	}
	for _, name := range names {
		must(t, h.del(name))
	}
	if rules := h.Host.Command("nft", "list", "ruleset"); strings.Contains(rules, "tenon:") {
		t.Errorf("left:\n%s", rules)
	}
	if links := h.Host.Command("ip", "-br", "link", "show", "type", "veth"); links != "" {
		t.Errorf("left:\n%s", links)
	}
}

// TestKilled: a watcher that is killed at any moment during repairs leaves a host that its
// successor completes.
func TestKilled(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("nsenter"))
	h := newHost(t, "nftables")
	h.addMany(4)
	before := h.state()
	for i := range 5 {
		nft("flush ruleset")(h)
		_ = h.Host.Try("ip", "link", "del", "br0") // the last watcher may have restored it
		cmd := h.process()
		testnet.Eventually(t, func() error { // the repair has begun, or has ended
			if i == 0 || strings.Contains(h.Host.Command("nft", "list", "tables"), "tenon") {
				return nil
			}
			return os.ErrNotExist
		})
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	must(t, h.Host.Run(func() error { return watch.Once(context.Background(), h.options(h.report)) }))
	h.wantState(before)
}
