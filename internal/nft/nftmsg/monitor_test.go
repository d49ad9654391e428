package nftmsg_test

import (
	"testing"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestMonitor: a transaction of another process is received with its deletions and the process.
func TestMonitor(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	testnet.Require(t, testnet.Tool("nft"))
	ns := testnet.NS(t, n.Host)
	m := openMonitor(t, ns)
	n.Host.Command("nft", `add table inet x; add set inet x s { type ipv4_addr; }; add chain inet x c;`+
		` add element inet x s { 10.0.0.1 comment "a", 10.0.0.2 }; add table inet other`)
	n.Host.Command("nft", "delete element inet x s { 10.0.0.1, 10.0.0.2 }; delete table inet other")
	n.Host.Command("nft", "delete table inet x")
	var list []nftmsg.Transacted
	for len(list) < 3 {
		more, _, err := m.Next(true)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, more...)
	}
	if len(list[0].Deleted) != 0 || list[0].Process != "nft" || list[0].PID == 0 {
		t.Errorf("creation: %+v", list[0])
	}
	d := list[1].Deleted
	if len(d) != 1 || d[0].Kind != "element" || d[0].Count != 2 || d[0].Name != "s" ||
		len(d[0].Owners) != 1 || d[0].Owners[0] != "a" {
		t.Errorf("elements: %+v", d)
	}
	d = list[2].Deleted
	if last := d[len(d)-1]; last.Kind != "table" || last.Table != (nftmsg.Table{Family: nftmsg.INet, Name: "x"}) {
		t.Errorf("table: %+v", d)
	}
}

func openMonitor(t *testing.T, ns *netns.NS) *nftmsg.Monitor {
	t.Helper()
	m, err := nftmsg.OpenMonitor(ns, netlink.StreamBuffer, func(table nftmsg.Table) bool { return table.Name == "x" })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}
