package ovs

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/ovslab"
)

// TestManyAtOnce attaches containers of one segment on two hosts at the same time, in a process for
// each, and detaches them in the same way. All reach each other, and nothing is left.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const each = 8
	c := newCluster(t, 2, ovslab.Start, ipv4)
	var clean []string
	for _, h := range c.hosts {
		clean = append(clean, h.sw.Rows())
		for i := range each {
			h.Container(fmt.Sprintf("c%d", i)) // one after the other
		}
	}
	all := func(verb cni.Command) {
		t.Helper()
		var wg sync.WaitGroup
		errs := make([]error, 2*each)
		for i := range errs {
			h := c.hosts[i/each]
			x := c.segment(h, 42).with(fmt.Sprintf("10.9.%d.%d/16", h.number, i%each+1))
			wg.Go(func() { _, errs[i] = h.call(verb, fmt.Sprintf("c%d", i%each), x) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	all(cni.Add)
	from := c.hosts[0].Container("c0")
	for i := range 2 * each {
		if i > 0 {
			testnet.Reaches(t, from, addr(i/each, i%each+1), true)
		}
	}
	all(cni.Del)
	for i, h := range c.hosts {
		if diff := testnet.Diff(clean[i], h.sw.Rows()); diff != "" {
			t.Errorf("left on %s:\n%s", h.Host.Name, diff)
		}
	}
}

// TestVanished: DEL succeeds and leaves nothing after the end of the container's namespace, and
// after the removal of the bridge.
func TestVanished(t *testing.T) {
	t.Parallel()
	h := newCluster(t, 1, ovslab.Start, ipv4).hosts[0]
	clean := h.sw.Rows()
	links := h.Host.Command("ip", "-o", "link")
	h.add("c", conf{"vxlanID": 42}, "10.9.0.1/24")
	h.Remove("c")
	for range 2 {
		if _, err := h.run(cni.Del, cni.Env{ContainerID: "c", IfName: "eth0"}, conf{"vxlanID": 42}); err != nil {
			t.Error(err)
		}
	}
	if diff := testnet.Diff(clean, h.sw.Rows()); diff != "" {
		t.Errorf("without the namespace, left:\n%s", diff)
	}
	if diff := testnet.Diff(links, h.Host.Command("ip", "-o", "link")); diff != "" {
		t.Errorf("without the namespace, left:\n%s", diff)
	}
	h.add("d", conf{"vxlanID": 42}, "10.9.0.1/24")
	h.sw.VSCtl("del-br", "ovs0")
	for range 2 {
		h.must(cni.Del, "d", conf{"vxlanID": 42})
	}
	const empty = "Bridge table\nPort table\nInterface table\n"
	if rows := h.sw.Rows(); rows != empty {
		t.Errorf("without the bridge, left:\n%s", rows)
	}
	if err := h.Container("d").Try("ip", "link", "show", "eth0"); err == nil {
		t.Error("without the bridge, the link is left")
	}
}
