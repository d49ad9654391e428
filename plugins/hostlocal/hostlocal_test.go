package hostlocal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

var suite = plugintest.Suite{
	Plugin: hostlocal.Plugin,
	Drifts: []plugintest.Drift{{Name: "reservation deleted", Break: func(t testing.TB, a plugintest.Attached) string {
		for _, ip := range a.Result.IPs {
			if err := os.Remove(filepath.Join(a.Dir, a.Conf["name"].(string), ip.Address.Addr().String())); err != nil {
				t.Fatal(err)
			}
		}
		return "Failed to find address added by container"
	}}},
}

func TestSuite(t *testing.T) { plugintest.Run(t, suite) }

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, suite) }

// host is a data folder and a way to call the plugin on it. host-local needs no namespace.
type host struct {
	t    *testing.T
	dir  string
	args string
}

func newHost(t *testing.T) *host {
	t.Parallel()
	return &host{t: t, dir: t.TempDir()}
}

// serve runs a verb for interface eth0 of a container. ipam is the inside of the ipam section, more the rest of the
// configuration.
func (h *host) serve(verb cni.Command, version, container, ipam, more string) ([]byte, error) {
	h.t.Helper()
	conf := fmt.Sprintf(`{"cniVersion": %q, "name": "mynet", "type": "x", "ipam": {"type": "host-local", "dataDir": %q, %s} %s}`, version, h.dir, ipam, more)
	if !json.Valid([]byte(conf)) {
		h.t.Fatalf("not JSON: %s", conf)
	}
	env := cni.Env{Command: verb, ContainerID: container, IfName: "eth0", Netns: "/no/such/namespace", Args: h.args}
	return hostlocal.Plugin.Serve(context.Background(), env, []byte(conf), nil)
}

// call is serve with a result as type.
func (h *host) call(verb cni.Command, version, container, ipam, more string) (*cni.Result, error) {
	h.t.Helper()
	out, err := h.serve(verb, version, container, ipam, more)
	if err != nil || verb != cni.Add {
		return nil, err
	}
	v, err := cni.ParseVersion(version)
	if err != nil {
		h.t.Fatal(err)
	}
	r, err := cni.DecodeResultStrict(out, v)
	if err != nil {
		h.t.Fatal(err)
	}
	return r, nil
}

// outcome of a verb in the newest version: what it printed, or the code and the message.
func (h *host) outcome(verb cni.Command, container, ipam, more string) string {
	h.t.Helper()
	out, err := h.serve(verb, "1.1.0", container, ipam, more)
	if err != nil {
		return fmt.Sprintf("%d %s", cni.CodeOf(err), cni.AsError(err).Msg)
	}
	return string(out)
}

// add calls ADD in the newest version and returns the addresses, or the code and the message.
func (h *host) add(container, ipam, more string) string {
	h.t.Helper()
	r, err := h.call(cni.Add, "1.1.0", container, ipam, more)
	if err != nil {
		return fmt.Sprintf("%d %s", cni.CodeOf(err), cni.AsError(err).Msg)
	}
	return addresses(r)
}

func addresses(r *cni.Result) string {
	var list []string
	for _, ip := range r.IPs {
		list = append(list, ip.Address.String())
	}
	return strings.Join(list, " ")
}

// files lists the data folder: name, then content.
func (h *host) files() string {
	h.t.Helper()
	entries, err := os.ReadDir(filepath.Join(h.dir, "mynet"))
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	var text strings.Builder
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(h.dir, "mynet", e.Name()))
		if err != nil {
			h.t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s %q\n", e.Name(), b)
	}
	return text.String()
}

// host-local.md, "Must also hold": all versions, two sets, routes in both families, resolvConf, exact files.
func TestWholeResult(t *testing.T) {
	t.Parallel()
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 192.0.2.3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ipam := fmt.Sprintf(`"resolvConf": %q,
		"ranges": [[{"subnet": "10.1.2.0/24"}, {"subnet": "10.2.2.0/24"}], [{"subnet": "2001:db8:1::/64"}]],
		"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}, {"dst": "192.168.0.0/16", "gw": "1.1.1.1"}, {"dst": "2001:db8:2::/64", "gw": "2001:db8:3::1"}]`, resolv)
	for _, v := range cni.Versions() {
		t.Run(v.String(), func(t *testing.T) {
			h := newHost(t)
			r, err := h.call(cni.Add, v.String(), " dummy"[1:], ipam, "")
			if err != nil {
				t.Fatal(err)
			}
			text, err := r.Encode(cni.V110)
			if err != nil {
				t.Fatal(err)
			}
			want := `{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.2/24","gateway":"10.1.2.1"},{"address":"2001:db8:1::2/64","gateway":"2001:db8:1::1"}],` +
				`"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"},{"dst":"192.168.0.0/16","gw":"1.1.1.1"},{"dst":"2001:db8:2::/64","gw":"2001:db8:3::1"}],` +
				`"dns":{"nameservers":["192.0.2.3"]}}`
			if v < cni.V030 { // grouped by family
				want = strings.Replace(want, `{"dst":"::/0"},{"dst":"192.168.0.0/16","gw":"1.1.1.1"}`, `{"dst":"192.168.0.0/16","gw":"1.1.1.1"},{"dst":"::/0"}`, 1)
			}
			if diff := cmp.Diff(want, string(text)); diff != "" {
				t.Error(diff)
			}
			const reserved = `10.1.2.2 "dummy\r\neth0"
2001:db8:1::2 "dummy\r\neth0"
`
			const rest = `last_reserved_ip.0 "10.1.2.2"
last_reserved_ip.1 "2001:db8:1::2"
lock ""
`
			if diff := cmp.Diff(reserved+rest, h.files()); diff != "" {
				t.Error(diff)
			}
			if _, err := h.call(cni.Del, v.String(), "dummy", ipam, ""); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(rest, h.files()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Configurations and what ADD answers. The order of sets is that of host-local.md section 1 and 2: ipRanges, the old
// form, ranges.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, ipam, more, args, want string }{
		{"old form", `"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.9", "rangeEnd": "10.1.2.20", "gateway": "10.1.2.30"`, "", "", "10.1.2.9/24"},
		{"order of the three forms", `"subnet": "10.1.2.0/24", "ranges": [[{"subnet": "10.1.4.0/24"}]]`,
			`, "runtimeConfig": {"ipRanges": [[{"subnet": "10.1.3.0/24"}]]}`, "", "10.1.3.2/24 10.1.2.2/24 10.1.4.2/24"},
		{"capability as containerd spells it", `"ranges": []`, `, "runtimeConfig": {"IPRanges": [[{"Subnet": "10.1.3.0/24", "RangeStart": "10.1.3.7"}]]}`, "", "10.1.3.7/24"},
		{"address of CNI_ARGS", `"subnet": "10.1.2.0/24"`, "", "IP=10.1.2.88", "10.1.2.88/24"},
		{"address of CNI_ARGS with a prefix", `"subnet": "10.1.2.0/24"`, "", "IP=10.1.2.88/24", "10.1.2.88/24"},
		{"addresses add up", `"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.3.0/24"}], [{"subnet": "2001:db8:1::/48"}]]`,
			`, "args": {"cni": {"ips": ["10.1.3.10/24"]}}, "runtimeConfig": {"ips": ["2001:db8:1::999"]}`, "IP=10.1.2.10", "10.1.2.10/24 10.1.3.10/24 2001:db8:1::999/48"},
		{"two addresses of one set", `"subnet": "10.1.2.0/24"`, `, "args": {"cni": {"ips": ["10.1.2.10", "10.1.2.11"]}}`, "", "7 failed to allocate all requested IPs: 10.1.2.11"},
		{"gateway asked for", `"subnet": "10.1.2.0/24"`, "", "IP=10.1.2.1", "7 failed to allocate for range 0: requested ip 10.1.2.1 is subnet's gateway"},
		{"not an address", `"subnet": "10.1.2.0/24"`, "", "IP=ten", "7 invalid IP address ten"},
		{"unknown key in CNI_ARGS", `"subnet": "10.1.2.0/24"`, "", "MAC=02:00:00:00:00:01", `4 CNI_ARGS: unknown keys ["MAC"]`},
		{"unknown key allowed", `"subnet": "10.1.2.0/24"`, "", "MAC=02:00:00:00:00:01;IgnoreUnknown=1", "10.1.2.2/24"},
		{"no range", `"ranges": []`, "", "", "7 no IP ranges specified"},
		{"empty set", `"ranges": [[]]`, "", "", "7 invalid range set 0: empty range set"},
		{"mixed families", `"ranges": [[{"subnet": "10.1.2.0/24"}, {"subnet": "2001:db8:1::/64"}]]`, "", "", "7 invalid range set 0: mixed address families"},
		{"overlap", `"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.0.0/16"}]]`, "", "", "7 range set 0 overlaps with 1"},
		{"too small", `"subnet": "10.1.2.0/31"`, "", "", "7 invalid range set 0: Network 10.1.2.0/31 too small to allocate from"},
		{"subnet is a number", `"subnet": 10`, "", "", "6 network configuration: ipam.subnet: a JSON number is not acceptable here"},
		{"resolvConf is not there", `"subnet": "10.1.2.0/24", "resolvConf": "/no/such/file"`, "", "", "5 resolvConf: open /no/such/file: no such file or directory"},
		{"resolvConf is a device", `"subnet": "10.1.2.0/24", "resolvConf": "/dev/zero"`, "", "", "5 resolvConf: /dev/zero: not a regular file"},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHost(t)
			h.args = row.args
			if diff := cmp.Diff(row.want, h.add("c1", row.ipam, row.more)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// 0.1.0 and 0.2.0 can tell one address of each family.
func TestOldVersionsHaveOneAddress(t *testing.T) {
	h := newHost(t)
	const ipam = `"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.3.0/24"}]]`
	_, err := h.call(cni.Add, "0.2.0", "c1", ipam, "")
	if err == nil || err.Error() != "CNI version 0.2.0 does not support more than 1 address per family" {
		t.Errorf("got %v", err)
	}
	if left := h.files(); left != "" {
		t.Errorf("left %s", left)
	}
}

// A second ADD for one attachment is refused, also where it asks for an address, and disturbs nothing.
func TestSecondAddIsRefused(t *testing.T) {
	h := newHost(t)
	const ipam = `"subnet": "10.1.2.0/24"`
	if got := h.add("c1", ipam, ""); got != "10.1.2.2/24" {
		t.Fatal(got)
	}
	for _, more := range []string{"", `, "runtimeConfig": {"ips": ["10.1.2.77"]}`} {
		const want = "7 failed to allocate for range 0: 10.1.2.2 has been allocated to c1, duplicate allocation is not allowed: DEL container c1 interface eth0 before ADD"
		if got := h.add("c1", ipam, more); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := h.add("c2", ipam, ""); got != "10.1.2.3/24" {
		t.Error(got)
	}
	if _, err := h.call(cni.Check, "1.1.0", "c1", ipam, ""); err != nil {
		t.Error(err)
	}
}

// What fails in the second set gives back what it took from the first.
func TestPartialAllocationIsTakenBack(t *testing.T) {
	h := newHost(t)
	const ipam = `"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "2001:db8:1::/126", "rangeStart": "2001:db8:1::2", "rangeEnd": "2001:db8:1::2"}]]`
	if got := h.add("c1", ipam, ""); got != "10.1.2.2/24 2001:db8:1::2/126" {
		t.Fatal(got)
	}
	if got := h.add("c2", ipam, ""); !strings.HasPrefix(got, "11 failed to allocate for range 1: no IP addresses available") {
		t.Error(got)
	}
	if files := h.files(); strings.Contains(files, "c2") {
		t.Errorf("left %s", files)
	}
}

// DEL needs the network's name, the folder and the attachment, and an old record without an interface will do
//
func TestDelGoesByOwner(t *testing.T) {
	h := newHost(t)
	if got := h.add("c1", `"subnet": "10.1.2.0/24"`, ""); got != "10.1.2.2/24" {
		t.Fatal(got)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "mynet", "10.1.2.9"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, container := range []string{"c1", "old", "never"} {
		if _, err := h.call(cni.Del, "1.1.0", container, `"ranges": [[{"subnet": "nonsense", "rangeStart": 7}]], "routes": 5`, ""); err != nil {
			t.Error(err)
		}
	}
	if files := h.files(); strings.Contains(files, "10.1.2.2 ") || strings.Contains(files, "10.1.2.9") {
		t.Errorf("left %s", files)
	}
}

