package netlink_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestOverrun checks that a stream reports lost messages after the kept ones, and that it loses
// none after the report.
func TestOverrun(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	s, err := netlink.OpenStream(testnet.NS(t, n.Host), netlink.StreamOptions{Protocol: unix.NETLINK_ROUTE,
		Groups: []int{unix.RTNLGRP_LINK}, Buffer: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n.Host.Batch(slices.Repeat([]string{"link add early type bridge", "link delete early"}, 20)...)
	kept := 0
	for {
		data, _, err := s.Next(true)
		if errors.Is(err, netlink.ErrOverrun) {
			break
		}
		if err != nil || !bytes.Contains(data, []byte("early")) {
			t.Fatalf("datagram %d of the flood has %d bytes: %v", kept, len(data), err)
		}
		kept++
	}
	if kept == 0 {
		t.Error("no message came before the report")
	}
	n.Host.Batch("link add late type bridge")
	if data, _, err := s.Next(false); err != nil || !bytes.Contains(data, []byte("late")) {
		t.Errorf("after the report: %d bytes, not about the new link: %v", len(data), err)
	}
}
