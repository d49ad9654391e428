//go:build clients

package interop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

const busConfig = `<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
	<policy context="default"><allow user="*"/><allow own="*"/><allow send_type="method_call"/>
	<allow send_destination="*" eavesdrop="true"/><allow receive_sender="*"/></policy></busconfig>`

// firewalld starts firewalld on a node, with its own system bus and an empty configuration.
func (n *node) firewalld() {
	n.t.Helper()
	testnet.Require(n.t, testnet.Tool("firewalld"), testnet.Tool("dbus-daemon"))
	n.write("/run/dbus/bus.conf", busConfig)
	n.write("/run/firewalld.etc/firewalld.conf", "DefaultZone=public\nFirewallBackend=nftables\n")
	n.run("sh", "-ec", `
		mount --bind /run/firewalld.etc /etc/firewalld
		mount -t tmpfs interop /var/log
		dbus-daemon --config-file=/run/dbus/bus.conf --nofork --nopidfile >/run/dbus.log 2>&1 &
		while ! [ -S /run/dbus/system_bus_socket ]; do sleep 0.05; done
		firewalld --nofork --nopid >/run/firewalld.log 2>&1 &`)
	n.await("firewalld", func() error {
		_, err := n.try("firewall-cmd", "--state")
		return err
	})
	n.t.Cleanup(func() {
		if n.t.Failed() {
			n.t.Log(n.try("cat", "/run/firewalld.log"))
		}
	})
}

// sources returns the sources of the zone for containers.
func (n *node) sources() string {
	n.t.Helper()
	return strings.TrimSpace(n.run("firewall-cmd", "--zone=trusted", "--list-sources"))
}

// TestClientsFirewalld: firewalld forgets the addresses of pods in a reload, and repair restores
// them. After a flush of the whole ruleset, new pods and repair work, and pods can be removed.
func TestClientsFirewalld(t *testing.T) {
	t.Parallel()
	c := newClients(t)
	tenon := c.install()
	c.firewalld()
	c.configureSmall("10.85.0.0/29", `,{"type":"firewall"}`)
	web, other := c.sandbox("web", 8080), c.sandbox("other", 8081)
	all := c.sources()
	if n := len(strings.Fields(all)); n != 4 {
		t.Errorf("sources %q, want two addresses for each of two pods", all)
	}
	c.run("firewall-cmd", "--reload")
	if got := c.sources(); got != "" {
		t.Errorf("sources after a reload: %q", got)
	}
	c.run(tenon, "repair", "--net-dir", netDir)
	if got := c.sources(); len(strings.Fields(got)) != 4 {
		t.Errorf("sources after repair: %q, want %q", got, all)
	}
	greeted(t, c.Host, c.first(web), true)

	c.Host.Command("nft", "flush", "ruleset")
	c.remove(web)                    // succeeds although firewalld cannot remove its addresses
	c.await("reload", func() error { // the first reload fails because the flush removed its tables
		out, err := c.try("firewall-cmd", "--reload")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	c.run(tenon, "repair", "--net-dir", netDir)
	if got := c.sources(); len(strings.Fields(got)) != 2 {
		t.Errorf("sources %q, want two addresses", got)
	}
	greeted(t, c.Host, c.first(other), true)
	c.remove(other)
	if got := c.sources(); got != "" {
		t.Errorf("sources without pods: %q", got)
	}
	c.nothingKept()
}

// first is the address of the first pod.
func (c *containerd) first(id string) string {
	c.t.Helper()
	addresses, _ := c.addresses(id)
	return addresses[0] + ":80"
}
