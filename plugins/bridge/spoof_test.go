package bridge_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

const guarded = `,"macspoofchk":true`

// etherType is unused on the host (IEEE 802, local experimental).
const etherType = 0x88b5

// frames is a packet socket on eth0 of a namespace. Any thread can use it.
type frames struct{ fd int }

func openFrames(t *testing.T, ns *plugintest.Namespace) frames {
	t.Helper()
	var f frames
	err := ns.Run(func() (err error) {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		if f.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
			int(all)); err != nil {
			return err
		}
		return unix.Bind(f.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(f.fd) })
	return f
}

// send sends a broadcast frame, with a VLAN tag unless vlan is 0.
func (f frames) send(t *testing.T, source net.HardwareAddr, vlan uint16, payload string) {
	t.Helper()
	frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, source...)
	if vlan != 0 {
		frame = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(frame, 0x8100), vlan)
	}
	frame = binary.BigEndian.AppendUint16(frame, etherType)
	frame = append(frame, payload...)
	frame = append(frame, make([]byte, 60)...)
	if _, err := unix.Write(f.fd, frame); err != nil {
		t.Fatal(err)
	}
}

// receive returns the given payloads that arrive, until the last of them has arrived.
func (f frames) receive(t *testing.T, payloads ...string) (got []string) {
	t.Helper()
	buf := make([]byte, 2000)
	for end := time.Now().Add(testnet.Patience); time.Now().Before(end); {
		tv := unix.NsecToTimeval(int64(10 * time.Millisecond))
		if err := unix.SetsockoptTimeval(f.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
			t.Fatal(err)
		}
		n, err := unix.Read(f.fd, buf)
		if err != nil {
			continue
		}
		for _, p := range payloads {
			if strings.Contains(string(buf[:n]), p) {
				got = append(got, p)
			}
		}
		if len(got) > 0 && got[len(got)-1] == payloads[len(payloads)-1] {
			break
		}
	}
	return got
}

func hardwareAddress(t *testing.T, s string) net.HardwareAddr {
	t.Helper()
	mac, err := net.ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

// TestForgedFrames sends frames with several source addresses and compares the frames that another
// container of the bridge receives.
func TestForgedFrames(t *testing.T) {
	t.Parallel()
	r := runtime(t, guarded)
	forged := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	own := hardwareAddress(t, r.Add("guarded").Interfaces[2].MAC)
	delete(r.Conf, "macspoofchk")
	free := hardwareAddress(t, r.Add("free").Interfaces[2].MAC)
	r.Add("witness")
	witness := openFrames(t, r.Container("witness"))
	see := func(container string, sent map[string]net.HardwareAddr, vlan uint16, want ...string) {
		t.Helper()
		f := openFrames(t, r.Container(container))
		var payloads []string
		// own comes last: all earlier frames have then arrived
		for _, name := range []string{"neighbour's", "forged", "own"} {
			payload := fmt.Sprintf("%s of %s in VLAN %d.", name, container, vlan)
			payloads = append(payloads, payload)
			f.send(t, sent[name], vlan, payload)
		}
		got := strings.Join(witness.receive(t, payloads...), "\n")
		for _, p := range payloads {
			name, _, _ := strings.Cut(p, " ")
			if wanted := strings.Contains(" "+strings.Join(want, " ")+" ",
				" "+name+" "); wanted != strings.Contains(got, p) {
				t.Errorf("%s: arrived: %t, want %t", p, !wanted, wanted)
			}
		}
	}
	for _, vlan := range []uint16{0, 100} {
		see("guarded", map[string]net.HardwareAddr{"own": own, "forged": forged,
			"neighbour's": free}, vlan, "own")
		see("free", map[string]net.HardwareAddr{"own": free, "forged": forged, "neighbour's": own},
			vlan, "own", "forged", "neighbour's")
	}
}

// TestChangedMAC: frames of a container that changes its MAC address are dropped until it restores
// the address.
func TestChangedMAC(t *testing.T) {
	t.Parallel()
	r := runtime(t, gateway+guarded+ipamDual)
	result := r.Add("c")
	check := func(want bool) {
		t.Helper()
		for _, ip := range result.IPs {
			testnet.Reaches(t, r.Container("c"), ip.Gateway, want)
		}
	}
	check(true)
	// Permanent neighbours, so that the dropped packets are frames and not neighbour solicitations.
	set := func(mac string) {
		r.Container("c").Command("ip", "link", "set", "eth0", "address", mac)
		r.Host.Command("ip", "neighbour", "flush", "all")
	}
	set("02:00:00:00:00:01")
	check(false)
	set(result.Interfaces[2].MAC)
	check(true)
	r.Check("c")
}

// guards lists the elements and chains that name containers, of Tenon and of the upstream plugin.
func guards(r *plugintest.Runtime) []string {
	var list []string
	for line := range strings.Lines(r.Host.Command("nft", "list", "ruleset", "bridge")) {
		if strings.Contains(line, "veth") || strings.Contains(line, "cni-br-iface") {
			list = append(list, strings.TrimSpace(line))
		}
	}
	return list
}

// TestGuardsAreRemoved: DEL with any input, and GC, remove the guards.
func TestGuardsAreRemoved(t *testing.T) {
	t.Parallel()
	r := runtime(t, guarded+ipam4)
	r.Conf["cniVersion"] = "1.1.0"
	r.Add("stays")
	before := strings.Join(guards(r), "\n")
	for name, remove := range map[string]func(){
		"DEL": func() { r.Del("c") },
		"DEL without namespace and previous result": func() {
			q := r.Request(cni.Del, "c")
			q.Netns = ""
			delete(q.Conf, "prevResult")
			r.Must(q)
		},
		"DEL after the namespace is gone": func() {
			q := r.Request(cni.Del, "c")
			r.Remove("c")
			r.Must(q)
		},
		"DEL without the key": func() {
			q := r.Request(cni.Del, "c")
			delete(q.Conf, "macspoofchk")
			r.Must(q)
		},
		"GC": func() { r.Must(r.Collect("stays")) },
		"GC without the key": func() {
			q := r.Collect("stays")
			delete(q.Conf, "macspoofchk")
			r.Must(q)
		},
	} {
		r.Add("c")
		if now := guards(r); len(now) == strings.Count(before, "\n")+1 {
			t.Fatal("ADD made no guard")
		}
		remove()
		if after := strings.Join(guards(r), "\n"); after != before {
			t.Errorf("%s: guards are\n%s\nwant\n%s", name, after, before)
		}
		r.Must(r.Request(cni.Del, "c"))
	}
	testnet.Reaches(t, r.Container("stays"), r.Add("other").IPs[0].Address.Addr(), true)
}

// TestGuardAmongManyRules: rules of other programs in the same family do not change. A test of
// package nft proves that they are not even read.
func TestGuardAmongManyRules(t *testing.T) {
	t.Parallel()
	r := runtime(t, guarded)
	var script strings.Builder
	script.WriteString("add table bridge nat\nadd chain bridge nat PREROUTING { type filter hook prerouting priority -300; }\n")
	for i := range 20000 {
		fmt.Fprintf(&script,
			"add rule bridge nat PREROUTING iifname \"port%d\" ether saddr 02:00:00:00:00:01 drop\n", i)
	}
	path := t.TempDir() + "/rules"
	if err := os.WriteFile(path, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Host.Command("nft", "-f", path)
	before := r.Host.Command("nft", "-a", "list", "table", "bridge", "nat")
	r.Add("c")
	r.Check("c")
	r.Del("c")
	r.Must(r.Collect())
	if r.Host.Command("nft", "-a", "list", "table", "bridge", "nat") != before {
		t.Error("the rules of other programs have changed")
	}
}

// TestReferenceGuards: DEL removes the upstream plugin's chains for the attachment, and GC removes
// its chains for ports that no longer exist.
func TestReferenceGuards(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool(reference+"/bridge"))
	for _, row := range []struct {
		name   string
		remove func(*plugintest.Runtime)
	}{
		{"DEL", func(r *plugintest.Runtime) { r.Must(r.Request(cni.Del, "c")) }},
		{"DEL after the namespace is gone", func(r *plugintest.Runtime) {
			q := r.Request(cni.Del, "c")
			r.Remove("c")
			r.Must(q)
		}},
		{"GC", func(r *plugintest.Runtime) {
			r.Must(r.Collect("c")) // chains of existing ports stay, in any network
			if n := len(guards(r)); n != 8 {
				t.Errorf("%d lines of guards after GC with both attached", n)
			}
			r.Container("c").Command("ip", "link", "delete", "eth0")
			r.Must(r.Collect())
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, guarded)
			r.Conf["cniVersion"] = "1.0.0"
			r.Foreign(reference, r.Request(cni.Add, "stays"))
			want := strings.Join(guards(r), "\n")
			q := r.Request(cni.Check, "c")
			q.Conf["prevResult"] = r.Foreign(reference, r.Request(cni.Add, "c"))
			r.Must(q)
			if now := guards(r); len(now) != 8 {
				t.Fatalf("the upstream plugin made %d lines of guards:\n%s", len(now),
					strings.Join(now, "\n"))
			}
			r.Conf["cniVersion"] = "1.1.0"
			row.remove(r)
			if got := strings.Join(guards(r), "\n"); got != want {
				t.Errorf("guards:\n%s\nwant\n%s", got, want)
			}
		})
	}
}
