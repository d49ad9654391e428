package portmap_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// vanish ends the namespace of a container without DEL and waits until its links are gone.
func (h *host) vanish(container string, bridge int) {
	h.t.Helper()
	before := len(h.ports(bridge))
	h.Container(container).Command("ip", "link", "delete", "eth0")
	for end := time.Now().
		Add(time.Minute); len(h.ports(bridge)) == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatal("the link is still there")
		}
	}
}

// TestVanishedHolder: the next container gets the port of a holder that vanished without DEL, with
// every pair of backends and an old version. An existing holder keeps its port. The rules of the
// holder can be in a table of legacy iptables, which a host restores at boot.
func TestVanishedHolder(t *testing.T) {
	t.Run("legacy", func(t *testing.T) { // first, because it changes PATH
		testnet.LegacyIPTables(t)
		for _, second := range backends {
			t.Run(second, func(t *testing.T) { testVanishedHolder(t, "iptables", second) })
		}
	})
	for _, first := range backends {
		for _, second := range backends {
			t.Run(first+" "+second, func(t *testing.T) {
				t.Parallel()
				testnet.Require(t, testnet.Tool("iptables-restore"))
				testVanishedHolder(t, first, second)
			})
		}
	}
}

func testVanishedHolder(t *testing.T, first, second string) {
	t.Helper()
	h := newHost(t, "")
	ports := both(8080, 80, "")
	for _, c := range []string{"gone", "alive", "next"} {
		h.attach(c, 0)
	}
	h.conf["backend"] = first
	h.add("gone", ports)
	h.add("alive", both(8081, 80, ""))
	h.conf["name"], h.conf["backend"], h.conf["cniVersion"] = "net2", second, "0.4.0"
	h.prev["next"] = bytes.Replace(h.prev["next"], []byte(`"cniVersion":"1.1.0"`),
		[]byte(`"cniVersion":"0.4.0"`), 1)
	serve(t, h.Container("next"), "next", "", 80)

	h.refused(session.CodeInUse, "next", ports)
	h.vanish("gone", 0)
	h.add("next", ports)
	answers(t, h.lan, "192.0.2.1:8080", "next")
	answers(t, h.lan, "[2001:db8::1]:8080", "next")
	h.check("next", ports)
	h.refused(session.CodeInUse, "next", both(8081, 80, ""))
	h.conf["name"], h.conf["backend"], h.conf["cniVersion"] = "net1", first, "1.1.0"
	h.check("alive", both(8081, 80, ""))
}

// TestHolderOfOthers: if the upstream plugins attached the holder, no link names it. It keeps its
// port as long as its address answers.
func TestHolderOfOthers(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("/usr/lib/cni/bridge"), testnet.Tool("iptables"))
	for _, by := range []string{"nftables", "iptables", "upstream"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, "")
			h.attach("next", 0)
			h.upstreamBridge("holder")
			if by == "upstream" {
				h.reference(cni.Add, "holder", both(8080, 80, ""))
			} else {
				h.conf["backend"] = by
				h.add("holder", both(8080, 80, ""))
				delete(h.conf, "backend")
			}
			h.refused(session.CodeInUse, "next", both(8080, 80, ""))
			h.vanish("holder", 0)
			h.add("next", both(8080, 80, ""))
		})
	}
}

// upstreamBridge attaches a container to br0 with the upstream plugin.
func (h *host) upstreamBridge(container string) {
	h.t.Helper()
	dir := h.t.TempDir()
	stdin, err := json.Marshal(object{
		"cniVersion": "1.0.0", "name": "bridge0", "type": "bridge", "bridge": "br0",
		"ipam": object{"type": "static", "addresses": []object{
			{"address": "10.1.0.77/24"}, {"address": "fd00:1::77/64"},
		}},
	})
	must(h.t, err)
	h.Host.Do(func() {
		cmd := exec.Command("/usr/lib/cni/bridge")
		cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), os.Stderr
		cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID="+container,
			"CNI_NETNS="+h.Container(container).Path(),
			"CNI_IFNAME=eth0", "CNI_PATH=/usr/lib/cni", "TMPDIR="+filepath.Clean(dir))
		h.prev[container], err = cmd.Output()
	})
	must(h.t, err)
}

// TestVanishedJustNow: a namespace that ends frees its ports soon, although the kernel removes it
// in the background.
func TestVanishedJustNow(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		h := newHost(t, withBackend(backend))
		for i := range 3 {
			ns, err := netns.New()
			must(t, err)
			c := fmt.Sprint("c", i)
			h.short[c] = ns.Path()
			h.attach(c, 0)
			_, err = h.call(cni.Add, c, h.request(c, both(8080, 80, "")))
			// The kernel closes the sockets of a namespace, which also use it, after a moment.
			for end := time.Now().Add(time.Minute); cni.CodeOf(err) == session.CodeInUse &&
				time.Now().Before(end); {
				_, err = h.call(cni.Add, c, h.request(c, both(8080, 80, "")))
			}
			must(t, err)
			must(t, ns.Close())
		}
	})
}

// TestVanishedAddress: the address of the vanished holder can already belong to the next container.
func TestVanishedAddress(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		h := newHost(t, withBackend(backend))
		h.attach("gone", 0)
		h.add("gone", both(8080, 80, ""))
		h.vanish("gone", 0)
		h.attach("next", 0)
		h.Container("next").
			Batch("address add 10.1.0.2/24 dev eth0", "address add fd00:1::2/64 dev eth0 nodad")
		h.prev["next"] = h.prev["gone"]
		serve(t, h.Container("next"), "next", "10.1.0.2", 80)
		h.add("next", both(8080, 80, ""))
		answers(t, h.lan, "192.0.2.1:8080", "next")
	})
}
