package nftmsg_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestTrace checks that the decision of a rule about a packet is received, and that a table with an
// owner ends with its connection.
func TestTrace(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("nft"), testnet.Tool("ping"))
	n := testnet.New(t)
	n.Host.Batch("link set lo up")
	ns := testnet.NS(t, n.Host)
	trace, err := nftmsg.OpenTrace(ns)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := nftmsg.Open(ns)
	if err != nil {
		t.Fatal(err)
	}
	table := nftmsg.Table{Family: nftmsg.INet, Name: "mine"}
	chain := nftmsg.Chain{Table: table, Name: "out", Type: nftmsg.ChainFilter,
		Hook: unix.NF_INET_LOCAL_OUT}
	var tx nftmsg.Transaction
	tx.AddOwnedTable(table)
	tx.AddChain(chain)
	tx.AddRule(chain, []nftmsg.Expr{
		nftmsg.Immediate{Register: unix.NFT_REG_1, Value: []byte{1}},
		nftmsg.SetMeta{Key: unix.NFT_META_NFTRACE, Register: unix.NFT_REG_1},
		nftmsg.Verdict{Code: nftmsg.Accept},
	})
	if err := conn.Commit(&tx); err != nil {
		t.Fatal(err)
	}
	n.Host.Command("ping", "-c", "1", "127.0.0.1")
	events, err := trace.Next()
	if err != nil || len(events) == 0 {
		t.Fatal(events, err)
	}
	e := events[0]
	if e.Table != table || e.Chain != "out" || e.Kind != unix.NFT_TRACETYPE_RULE || e.Handle == 0 ||
		e.Verdict.Code != nftmsg.Accept || e.Packet == 0 || len(e.Network) < 20 || len(e.Transport) < 8 {
		t.Errorf("%+v", e)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if got := n.Host.Command("nft", "list", "tables"); strings.Contains(got, "mine") {
		t.Errorf("after the connection: %s", got)
	}
	if err := trace.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := trace.Next(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed trace: %v", err)
	}
}
