// Package testnet gives tests a real kernel: temporary network namespaces, traffic between them, a
// text of their complete state, the decision to skip, and a check for leaks. It is for tests only.
// Except for package iptables, only this package and nstest start tools: tools of other projects
// serve as independent witnesses.
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

// New creates a host, with its loopback interface up, and the named containers. If that is not
// possible, it skips or fails the test, see [Require].
func New(t testing.TB, containers ...string) *Net {
	t.Helper()
	Require(t, Namespaces, Tool("ip"))
	return nstest.New(t, containers...)
}

// NS returns a handle on a namespace that is closed at the end of the test.
func NS(t testing.TB, n *Namespace) *netns.NS {
	t.Helper()
	ns, err := netns.Open(n.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}
