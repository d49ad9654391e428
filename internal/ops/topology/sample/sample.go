// Package sample builds states of hosts for tests of maps. It needs no kernel, and equal arguments
// give equal states.
package sample

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/network"
)

// Inodes of namespaces: the host's, and the first container's.
const ownInode, firstInode int64 = 4026531840, 4026532100

// Hostile are names with which containers and programs try to break out of a format.
var hostile = []string{`<script>document.title="owned"</script>`, `"><img src=x onerror=alert(1)>`,
	"';alert(1)//", "]]></style><b>", "a\x1b[31mred\x07", "ab\u202etxt.exe", "日本語のコンテナ", "#quot;|`~"}

// state is a host under construction.
type state struct {
	h       *host.Host
	p       *why.Places
	masked  []string // elements of masq4 as JSON
	ports   []string // of dnat4
	next    int      // index of the next link of the host
	records map[string]*cni.List
}

// Host returns a host with containers on a bridge, two on a VLAN, and a bridge of Docker. Some
// have a problem: there are at least 6.
func Host(containers int) *why.Places {
	s := newState()
	s.uplink("up0", "192.0.2.1/24", "192.0.2.2")
	cni0 := s.link(host.Link{Name: "cni0", Kind: "bridge", Bridge: &host.Bridge{}}, "10.77.0.1/16",
		"fd77::1/64")
	names := []string{"web", "db", "cache"}
	for i := range containers {
		name := fmt.Sprintf("api-%d", i-len(names)+1)
		if i < len(names) {
			name = names[i]
		}
		if i == 4 && containers > 40 {
			name = "4f5c9d0a6b1e7c2d8f3a4b5c6d7e8f901a2b3c4d5e6f708192a3b4c5d6e7f809"
		}
		s.container("pods", name, i, cni0)
	}
	if containers > 3 {
		s.trouble()
	}
	if containers > 10 {
		s.lan()
	}
	docker := s.link(host.Link{Name: "docker0", Kind: "bridge", Bridge: &host.Bridge{}},
		"172.17.0.1/16")
	docker.Flags, docker.OperState = []string{"up"}, "down"
	return s.finish()
}

// Hostile returns a host on which names of containers, networks and interfaces are attacks.
func Hostile() *why.Places {
	s := newState()
	s.uplink("up0", "192.0.2.1/24", "192.0.2.2")
	cni0 := s.link(host.Link{Name: `<b>"cni'0`, Kind: "bridge", Bridge: &host.Bridge{}},
		"10.77.0.1/16")
	for i, name := range hostile {
		s.container("pods</script><i>", name, i, cni0)
	}
	return s.finish()
}

func newState() *state {
	s := &state{h: &host.Host{Version: host.Version, Time: time.Date(2026, 3, 1, 2, 53, 0, 0,
		time.UTC),
		Name: "node-7", Kernel: "6.1.0-18-amd64", BootID: "boot", Settings: map[string]string{},
		Namespaces: []host.Namespace{{ID: fmt.Sprintf("4:%d", ownInode),
			Settings: map[string]string{"net.ipv4.ip_forward": "1"}}}},
		next: 2, records: map[string]*cni.List{}}
	s.p = &why.Places{Host: s.h}
	return s
}

func (s *state) own() *host.Namespace { return &s.h.Namespaces[0] }

// link adds a link that is up to the host. The pointer is valid until the next call.
func (s *state) link(l host.Link, addresses ...string) *host.Link {
	l.Index, l.MTU, l.Flags, l.OperState = s.next, 1500, []string{"up", "lower-up"}, "up"
	l.MAC = fmt.Sprintf("02:00:00:00:%02x:%02x", s.next>>8, s.next&0xff)
	s.next++
	s.own().Links = append(s.own().Links, l)
	for _, a := range addresses {
		s.own().Addrs = append(s.own().Addrs, address(l.Index, a))
	}
	return &s.own().Links[len(s.own().Links)-1]
}

func address(link int, prefix string) host.Addr {
	return host.Addr{Link: link, Prefix: netip.MustParsePrefix(prefix), Scope: "global"}
}

// uplink adds an interface with a default route.
func (s *state) uplink(name, prefix, gateway string) {
	l := s.link(host.Link{Name: name}, prefix)
	s.own().Routes = append(s.own().Routes, route(l.Index, "0.0.0.0/0", gateway))
}

func route(link int, dst, via string) host.Route {
	return host.Route{Type: "unicast", Dst: netip.MustParsePrefix(dst), Table: 254, Protocol: 3,
		Scope: "global",
		Hops:  []host.Hop{{Link: link, Via: netip.MustParseAddr(via)}}}
}

// namespace adds a namespace with one interface and returns it.
func (s *state) namespace(path string, l host.Link, addresses ...string) *host.Namespace {
	i := len(s.h.Namespaces)
	n := host.Namespace{ID: fmt.Sprintf("4:%d", firstInode+int64(i)), Paths: []string{path},
		Peers: []host.Peer{{NSID: 0, ID: s.own().ID}}, Settings: map[string]string{}}
	l.Index, l.MTU, l.Flags, l.OperState, l.LowerNSID = 2, 1500, []string{"up", "lower-up"}, "up",
		new(int)
	l.MAC = fmt.Sprintf("02:42:00:00:%02x:%02x", i>>8, i&0xff)
	n.Links = []host.Link{l}
	for _, a := range addresses {
		n.Addrs = append(n.Addrs, address(l.Index, a))
	}
	s.h.Namespaces = append(s.h.Namespaces, n)
	s.own().Peers = append(s.own().Peers, host.Peer{NSID: i, ID: n.ID})
	return &s.h.Namespaces[i]
}

// container attaches a container to a bridge.
func (s *state) container(network, name string, i int, bridge *host.Link) {
	const first, perByte = 2, 250
	addr := fmt.Sprintf("10.77.%d.%d/16", i/perByte, i%perByte+first)
	addr6 := fmt.Sprintf("fd77::%x/64", i+first)
	master := bridge.Index
	nsid := len(s.h.Namespaces)
	key := cni.Attachment{Network: network, Container: name, IfName: "eth0"}
	host0 := s.link(host.Link{Name: "veth" + string(key.Owner())[21:], Kind: "veth", Master: master,
		Lower:     2,
		LowerNSID: &nsid, Port: &host.Port{State: "forwarding"}, Alias: key.Tag()})
	n := s.namespace("/run/netns/"+fmt.Sprint("c", i), host.Link{Name: "eth0", Kind: "veth",
		Lower: host0.Index}, addr, addr6)
	n.Routes = []host.Route{route(2, "0.0.0.0/0", "10.77.0.1")}
	s.record(key, n.Paths[0], "10.77.0.1", addr, addr6)
	a := netip.MustParsePrefix(addr).Addr()
	s.masked = append(s.masked, element(a.AsSlice(), nil, key.Tag()))
	if i == 0 {
		const tcp, to, published = 6, 80, 8080
		s.ports = append(s.ports, element([]byte{tcp, 0, 0, 0, published >> 8, published & 0xff, 0, 0},
			append(a.AsSlice(), 0, to, 0, 0), key.Tag()))
	}
}

// record adds the record of an attachment.
func (s *state) record(key cni.Attachment, path, gateway string, addrs ...string) {
	list := s.records[key.Network]
	if list == nil {
		conf := fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"plugins":[{"type":"bridge","isGateway":true,"ipMasq":%t}]}`,
			"x", key.Network != "lan")
		list, _ = cni.ParseList([]byte(conf)) // of this package
		s.records[key.Network] = list
	}
	r := &cni.Result{Interfaces: []cni.Interface{{Name: key.IfName, Sandbox: path}},
		Routes: []cni.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}}}
	for i, a := range addrs {
		ip := cni.IP{Interface: cni.Some(0), Address: netip.MustParsePrefix(a)}
		if i == 0 {
			ip.Gateway = netip.MustParseAddr(gateway)
		}
		if ip.Address.Addr().Is4() { // only these are masqueraded here
			r.IPs = append(r.IPs, ip)
		}
	}
	s.p.Records = append(s.p.Records, network.Record{Attachment: key, State: network.Attached,
		List:   list,
		Result: r, BootID: "boot", Runtime: "containerd", Parameters: network.Parameters{Netns: path}})
}

// trouble takes the masquerading of the first container, the host side of the second one's pair,
// and the namespace of the third one.
func (s *state) trouble() {
	s.masked = s.masked[1:]
	for i := range s.own().Links {
		if l := &s.own().Links[i]; l.Alias == s.p.Records[1].Attachment.Tag() {
			l.Flags, l.OperState = nil, "down"
		}
	}
	s.p.Records[2].Netns = "/run/netns/gone"
}

// lan adds an interface with a VLAN, and two containers on it.
func (s *state) lan() {
	eth1 := s.link(host.Link{Name: "eth1"})
	index := eth1.Index
	vlan := s.link(host.Link{Name: "eth1.20", Kind: "vlan", VLAN: 20, Lower: index}, "198.51.100.1/24")
	parent := vlan.Index
	for i, name := range []string{"printer", "scanner"} {
		addr := fmt.Sprintf("198.51.100.%d/24", i+10)
		n := s.namespace("/run/netns/"+name, host.Link{Name: "net1", Kind: "macvlan", Mode: "bridge",
			Lower: parent}, addr)
		n.Routes = []host.Route{route(2, "0.0.0.0/0", "198.51.100.1")}
		s.record(cni.Attachment{Network: "lan", Container: name, IfName: "net1"}, n.Paths[0],
			"198.51.100.1", addr)
	}
}

// element returns an element of a set as JSON.
func element(key, value []byte, comment string) string {
	text := fmt.Sprintf(`{"key":%q,"comment":%s`, base64.StdEncoding.EncodeToString(key),
		quote(comment))
	if value != nil {
		text += fmt.Sprintf(`,"value":%q`, base64.StdEncoding.EncodeToString(value))
	}
	return text + "}"
}

func quote(s string) string {
	b, _ := json.Marshal(s) // a string
	return string(b)
}

// finish adds the rule set of Tenon.
func (s *state) finish() *why.Places {
	const table = `{"family":1,"name":"tenon"}`
	text := `{"sets":[`
	for i, x := range []struct {
		name     string
		elements []string
	}{{"masq4", s.masked}, {"dnat4", s.ports}} {
		if i > 0 {
			text += ","
		}
		text += `{"table":` + table + `,"name":"` + x.name + `","elements":[`
		for j, e := range x.elements {
			if j > 0 {
				text += ","
			}
			text += e
		}
		text += "]}"
	}
	if err := json.Unmarshal([]byte(text+"]}"), &s.own().Ruleset); err != nil {
		panic(err) // a mistake of this package
	}
	return s.p
}
