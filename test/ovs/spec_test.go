package ovs

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/dhcpserver"
	"github.com/tenon-cni/tenon/internal/testnet/ovslab"
)

// example is the configuration in the specification before version 1.0. It says nothing about the
// nodes of the segment: a file on each of them does.
const example = `{
	"cniVersion": "1.0.0", "name": "pci", "type": "ovs", "bridge": "ovs0", "vxlanID": 42,
	"ipam": {"type": "dhcp", "routes": [{"dst": "10.3.0.0/16"}, {"dst": "10.4.0.0/16"}]},
	"args": {"labels": {"appVersion": "1.0"}}}`

// TestSpecificationExample runs the example of the specification on two hosts, with a DHCP server
// in the segment. The containers reach each other and the server, and nothing on the bridge outside
// the segment.
func TestSpecificationExample(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, ovslab.Start, ipv4)
	a, b := c.hosts[0], c.hosts[1]
	a.must(cni.Add, "vlan7", conf{"vlan": 7}) // so that the hosts use different VLANs
	a.serveDHCP(c.segment(a, 42))
	outsider := a.add("outsider", c.segment(a, 43), "10.92.0.50/24")
	b.add("outsider", c.segment(b, 43), "10.92.0.51/24")

	addresses := map[*host]netip.Addr{}
	for _, h := range c.hosts {
		var x conf
		if err := json.Unmarshal([]byte(example), &x); err != nil {
			t.Fatal(err)
		}
		x["configuration_path"] = h.file(c.segment(h, 0))
		x["ipam"].(map[string]any)["daemonSocketPath"] = h.dhcpDaemon()
		r, err := cni.DecodeResult(h.must(cni.Add, "c", x), cni.V100)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.IPs) != 1 {
			t.Fatalf("addresses on %s: %v", h.Host.Name, r.IPs)
		}
		addresses[h] = r.IPs[0].Address.Addr()
		routes := h.Container("c").Command("ip", "route")
		for _, dst := range []string{"10.3.0.0/16", "10.4.0.0/16"} {
			if !strings.Contains(routes, dst) {
				t.Errorf("no route to %s on %s:\n%s", dst, h.Host.Name, routes)
			}
		}
	}
	server := netip.MustParseAddr("10.92.0.1")
	testnet.Reaches(t, a.Container("c"), addresses[b], true)
	testnet.Reaches(t, b.Container("c"), addresses[a], true)
	testnet.Reaches(t, b.Container("c"), server, true)
	testnet.Reaches(t, outsider, netip.MustParseAddr("10.92.0.51"), true)
	for _, address := range append(slices.Collect(maps.Values(addresses)), server) {
		testnet.Reaches(t, outsider, address, false)
	}
}

// file writes options of the plugin to a file for configuration_path.
func (h *host) file(options conf) string {
	h.t.Helper()
	content, err := json.Marshal(options)
	if err != nil {
		h.t.Fatal(err)
	}
	path := filepath.Join(h.t.TempDir(), "ovs.conf")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		h.t.Fatal(err)
	}
	return path
}

// serveDHCP attaches a DHCP server at 10.92.0.1 to a segment.
func (h *host) serveDHCP(segment conf) {
	h.t.Helper()
	n := testnet.New(h.t)
	n.Host.Name = "server"
	h.attach("server", n.Host.Path(), "br0", segment)
	if err := ovslab.PlainChecksums(n.Host, "br0"); err != nil {
		h.t.Fatal(err)
	}
	n.Host.Batch("address add 10.92.0.1/24 dev br0")
	dhcpserver.Start(h.t, n, dhcpserver.Kinds[0], "10.92.0.100,10.92.0.200", 3600)
}

// dhcpDaemon starts tenon-dhcp on the host and returns its socket.
func (h *host) dhcpDaemon() string {
	h.t.Helper()
	socket := filepath.Join(h.sw.Dir, "dhcp.sock")
	cmd := exec.Command(filepath.Join(h.plugins, dhcp.Program), "--socketpath", socket)
	var log strings.Builder
	cmd.Stderr = &log
	if err := h.Host.Run(cmd.Start); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if h.t.Failed() {
			h.t.Logf("tenon-dhcp on %s:\n%s", h.Host.Name, &log)
		}
	})
	testnet.Eventually(h.t, func() error {
		if _, err := dhcp.Call(h.t.Context(), socket, dhcp.Request{Verb: dhcp.Status}); err != nil {
			return fmt.Errorf("tenon-dhcp: %w", err)
		}
		return nil
	})
	return socket
}
