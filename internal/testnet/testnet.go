// Package testnet gives tests a real kernel: throw-away network namespaces, traffic between them, a
// text of their complete state, the decision to skip, and a check for leaks. It is for tests only.
// Outside of package iptables, only this package and nstest start tools: tools of other projects
// are an independent witness.
package testnet

import (
	"testing"

	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/plugin/plugintest/nstest"
)

// Net is a host and its containers.
type Net = nstest.Net

// Namespace is the network namespace of a host or a container.
type Namespace = nstest.Namespace

// New makes a host, with its loopback up, and the containers named. The test is skipped or fails where that is not
// possible, see [Require].
func New(t testing.TB, containers ...string) *Net {
	t.Helper()
	Require(t, Namespaces, Tool("ip"))
	return nstest.New(t, containers...)
}

// NS returns a handle on a namespace that ends with the test.
func NS(t testing.TB, n *Namespace) *netns.NS {
	t.Helper()
	ns, err := netns.Open(n.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}
