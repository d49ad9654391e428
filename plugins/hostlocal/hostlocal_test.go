package hostlocal_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

var suite = plugintest.Suite{
	Plugin: hostlocal.Plugin,
	Drifts: []plugintest.Drift{{Name: "reservation deleted",
		Break: func(t testing.TB, a plugintest.Attached) string {
			for _, ip := range a.Result.IPs {
				if err := os.Remove(filepath.Join(a.Dir, a.Conf["name"].(string), ip.Address.Addr().
					String())); err != nil {
					t.Fatal(err)
				}
			}
			return "Failed to find address added by container"
		}}},
}

// The contracts of every plugin; for host-local: DEL twice, without ADD, namespace, prevResult and
// with any configuration (PL-DEL-01, PL-DEL-02, PL-DEL-03, PL-DEL-04, PL-DEL-05, PL-DEL-08,
// IPAM-06), results in the version of the call (IPAM-02, IPAM-05), and 30 concurrent calls
// (IPAM-11).
func TestSuite(t *testing.T) { plugintest.Run(t, suite) }

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, suite) }

// host is a data directory and a way to call the plugin on it. host-local needs no namespace.
type host struct {
	t    *testing.T
	dir  string
	args string
}

func newHost(t *testing.T) *host {
	t.Parallel()
	return &host{t: t, dir: t.TempDir()}
}

// serve runs a verb for interface eth0 of a container. ipam holds the members of the ipam section,
// more the other members of the configuration.
func (h *host) serve(verb cni.Command, version, container, ipam, more string) ([]byte, error) {
	h.t.Helper()
	dir, err := json.Marshal(h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	conf := fmt.Sprintf(`{"cniVersion": %q, "name": "mynet", "type": "x", "ipam": {"type": "host-local", "dataDir": %s, %s} %s}`,
		version, dir, ipam, more)
	if !json.Valid([]byte(conf)) {
		h.t.Fatalf("not JSON: %s", conf)
	}
	env := cni.Env{Command: verb, ContainerID: container, IfName: "eth0",
		Netns: "/no/such/namespace", Args: h.args}
	return hostlocal.Plugin.Serve(context.Background(), env, []byte(conf), nil)
}

// call is serve with a parsed result.
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

// outcome runs a verb in the newest version and returns its output, or the code and the message.
func (h *host) outcome(verb cni.Command, container, ipam, more string) string {
	h.t.Helper()
	out, err := h.serve(verb, "1.1.0", container, ipam, more)
	if err != nil {
		return fmt.Sprintf("%d %s", cni.CodeOf(err), cni.AsError(err).Msg)
	}
	return string(out)
}

// add runs ADD in the newest version and returns the addresses, or the code and the message.
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

// files lists the data directory as names with contents.
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

// All versions, two range sets, routes in both families, resolvConf, exact files.
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
			r, err := h.call(cni.Add, v.String(), "dummy", ipam, "")
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
				want = strings.Replace(want,
					`{"dst":"::/0"},{"dst":"192.168.0.0/16","gw":"1.1.1.1"}`,
					`{"dst":"192.168.0.0/16","gw":"1.1.1.1"},{"dst":"::/0"}`, 1)
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

// The first allocation, in an empty directory, prints only the result.
func TestFirstAllocationIsSilent(t *testing.T) {
	h := newHost(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Args[0], cmd.Stdout, cmd.Stderr = "host-local", &stdout, &stderr
	cmd.Env = append(os.Environ(), cni.Env{
		Command: cni.Add, ContainerID: "c1", IfName: "eth0", Netns: "/no/such/namespace",
	}.Environ()...)
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "mynet", "ipam": {"type": "host-local", "dataDir": %q, %s}}`,
		h.dir, pool))
	err = cmd.Run()
	const want = `{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.2/24","gateway":"10.1.2.1"}]}`
	if err != nil || stdout.String() != want || stderr.Len() > 0 {
		t.Errorf("%v: printed %s, want %s; on standard error %s", err, &stdout, want, &stderr)
	}
}

// Configurations with the answer of ADD. The order of sets is ipRanges, the old form, ranges (R-50,
//
func TestConfigurations(t *testing.T) {
	t.Parallel()
	const pools = `"ranges": [[{"subnet": "10.1.2.0/24"}, {"subnet": "10.1.4.0/24"}], [{"subnet": "10.1.3.0/24"}], [{"subnet": "2001:db8:1::/48"}]]`
	for _, row := range []struct{ name, ipam, more, args, want string }{
		{"old form",
			`"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.9", "rangeEnd": "10.1.2.20", "gateway": "10.1.2.30"`, "", "", "10.1.2.9/24"},
		{"old form without subnet is ignored",
			`"rangeStart": "10.9.9.9", "gateway": "10.9.9.1", "ranges": [[{"subnet": "10.1.2.0/24"}]]`, "", "", "10.1.2.2/24"},
		{"new form", `"ranges": [[{"subnet": "10.1.2.0/24"}]]`, "", "", "10.1.2.2/24"},
		{"order of the three forms (CONV-11)",
			`"subnet": "10.1.2.0/24", "ranges": [[{"subnet": "10.1.4.0/24"}]]`,
			`, "runtimeConfig": {"ipRanges": [[{"subnet": "10.1.3.0/24"}]]}`, "", "10.1.3.2/24 10.1.2.2/24 10.1.4.2/24"},
		{"ipRanges as containerd spells them (CONV-11)", `"ranges": []`,
			`, "runtimeConfig": {"ipRanges": [[{"Subnet": "10.1.3.0/24", "RangeStart": "10.1.3.7", "RangeEnd": "10.1.3.7", "Gateway": "10.1.3.7"}]]}`,
			"", "11 failed to allocate for range 0: no IP addresses available in range set: 10.1.3.7-10.1.3.7"},
		{"the capability in capitals, too", `"ranges": []`,
			`, "runtimeConfig": {"IPRanges": [[{"Subnet": "10.1.3.0/24", "RangeStart": "10.1.3.7"}]]}`, "", "10.1.3.7/24"},
		{"ipRanges is null", `"subnet": "10.1.2.0/24"`, `, "runtimeConfig": {"ipRanges": null}`, "",
			"10.1.2.2/24"},
		{"ipRanges is a flat list (CONV-11)", `"subnet": "10.1.2.0/24"`,
			`, "runtimeConfig": {"ipRanges": [{"subnet": "10.1.3.0/24"}]}`, "",
			"6 runtimeConfig.ipRanges: expected an array, found an object"},
		{"name in ipam is ignored", `"name": "../elsewhere", "subnet": "10.1.2.0/24"`, "", "",
			"10.1.2.2/24"},
		{"address of CNI_ARGS (CONV-21)", `"subnet": "10.1.2.0/24"`, "", "IP=10.1.2.88",
			"10.1.2.88/24"},
		{"address of CNI_ARGS with a prefix (CONV-21)", `"subnet": "10.1.2.0/24"`, "",
			"IP=10.1.2.88/16", "10.1.2.88/24"},
		{"address of args (CONV-20)", `"subnet": "10.1.2.0/24"`,
			`, "args": {"cni": {"labels": [{"key": "a", "value": "b"}], "ips": ["10.1.2.88"]}}`, "",
			"10.1.2.88/24"},
		{"address of the capability with and without a prefix (CONV-14)", pools,
			`, "runtimeConfig": {"ips": ["10.1.2.5", "10.1.3.5/8"]}`, "",
			"10.1.2.5/24 10.1.3.5/24 2001:db8:1::2/48"},
		{"addresses of all sources add up (CONV-24, IPAM-10)", pools,
			`, "args": {"cni": {"ips": ["10.1.3.10/24"]}}, "runtimeConfig": {"ips": ["2001:db8:1::999"]}`, "IP=10.1.2.10", "10.1.2.10/24 10.1.3.10/24 2001:db8:1::999/48"},
		{"one address from three sources", `"subnet": "10.1.2.0/24"`,
			`, "args": {"cni": {"ips": ["10.1.2.10/24"]}}, "runtimeConfig": {"ips": ["10.1.2.10"]}`,
			"IP=10.1.2.10/32", "10.1.2.10/24"},
		{"second range of a set", pools, "", "IP=10.1.4.9",
			"10.1.4.9/24 10.1.3.2/24 2001:db8:1::2/48"},
		{"two addresses of one set", `"subnet": "10.1.2.0/24"`,
			`, "args": {"cni": {"ips": ["10.1.2.10", "10.1.2.11"]}}`, "",
			"7 failed to allocate all requested IPs: 10.1.2.11"},
		{"an address outside all sets", `"subnet": "10.1.2.0/24"`, "", "IP=10.9.9.9",
			"7 failed to allocate all requested IPs: 10.9.9.9"},
		{"gateway requested", `"subnet": "10.1.2.0/24"`, "", "IP=10.1.2.1",
			"7 failed to allocate for range 0: requested ip 10.1.2.1 is subnet's gateway"},
		{"not an address", `"subnet": "10.1.2.0/24"`, "", "IP=ten", "7 invalid IP address ten"},
		{"an empty address is ignored", `"subnet": "10.1.2.0/24"`, "", "IP=", "10.1.2.2/24"},
		{"unknown key in CNI_ARGS (CONV-22)", `"subnet": "10.1.2.0/24"`, "",
			"MAC=02:00:00:00:00:01", `4 ARGS: unknown args ["MAC=02:00:00:00:00:01"]`},
		{"keys of CNI_ARGS are case-sensitive (CONV-22)", `"subnet": "10.1.2.0/24"`, "",
			"ip=10.1.2.9", `4 ARGS: unknown args ["ip=10.1.2.9"]`},
		{"unknown keys allowed (CONV-22)", `"subnet": "10.1.2.0/24"`, "",
			"K8S_POD_NAME=web;IP=10.1.2.9;IgnoreUnknown=TRUE", "10.1.2.9/24"},
		{"CNI_ARGS end in a semicolon (CONV-23)", `"subnet": "10.1.2.0/24"`, "", "IP=10.1.2.9;",
			`4 ARGS: invalid pair ""`},
		{"a key twice: the last counts (CONV-23)", `"subnet": "10.1.2.0/24"`, "",
			"IP=10.1.2.9;IP=10.1.2.10", "10.1.2.10/24"},
		{"no range", `"ranges": []`, "", "", "7 no IP ranges specified"},
		{"empty set", `"ranges": [[]]`, "", "", "7 invalid range set 0: empty range set"},
		{"mixed families", `"ranges": [[{"subnet": "10.1.2.0/24"}, {"subnet": "2001:db8:1::/64"}]]`,
			"", "", "7 invalid range set 0: mixed address families"},
		{"overlap inside a set",
			`"ranges": [[{"subnet": "10.1.2.0/24"}, {"subnet": "10.1.2.0/25"}]]`, "", "",
			"7 invalid range set 0: subnets 10.1.2.1-10.1.2.254 and 10.1.2.1-10.1.2.126 overlap"},
		{"overlap of sets", `"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.0.0/16"}]]`,
			"", "", "7 range set 0 overlaps with 1"},
		{"too small", `"subnet": "10.1.2.0/31"`, "", "",
			"7 invalid range set 0: Network 10.1.2.0/31 too small to allocate from"},
		{"subnet is a number", `"subnet": 10`, "", "",
			"6 network configuration: ipam.subnet: expected a string, found a number"},
		{"requested addresses are checked before ranges", `"ranges": []`, "", "IP=ten",
			"7 invalid IP address ten"},
		{"first byte zero",
			`"ranges": [[{"subnet": "0.1.2.0/24", "rangeStart": "0.1.2.255", "rangeEnd": "0.1.2.255"}, {"subnet": "0.1.3.0/24", "rangeStart": "0.1.3.0"}], [{"subnet": "::/64", "rangeStart": "::ffff"}]]`, "", "", "0.1.2.255/24 ::ffff/64"},
		{"resolvConf does not exist", `"subnet": "10.1.2.0/24", "resolvConf": "/no/such/file"`, "",
			"", "5 resolvConf: open /no/such/file: no such file or directory"},
		{"resolvConf is a device", `"subnet": "10.1.2.0/24", "resolvConf": "/dev/zero"`, "", "",
			"5 resolvConf: open /dev/zero: not a regular file"},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHost(t)
			h.args = row.args
			if diff := cmp.Diff(row.want, h.add("c1", row.ipam, row.more)); diff != "" {
				t.Error(diff)
			}
			if files := h.files(); strings.HasPrefix(row.want, "7") &&
				strings.Contains(files, "c1") {
				t.Errorf("left %s", files)
			}
		})
	}
}

// The result contains routes with all members of version 1.1.0, in their order, and addresses
// without interface (IPAM-03).
func TestRoutesAreCopied(t *testing.T) {
	h := newHost(t)
	const routes = `[{"dst":"0.0.0.0/0"},{"dst":"192.168.0.0/16","gw":"10.1.2.7","mtu":1400,"advmss":1340,"priority":300,"table":1000,"scope":0},` +
		`{"dst":"0.0.0.0/0"},{"dst":"fd00::/8","table":0,"scope":253}]`
	out, err := h.serve(cni.Add, "1.1.0", "c1", pool+`, "routes": `+routes, "")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.2/24","gateway":"10.1.2.1"}],"routes":` + routes + `}`
	var got bytes.Buffer
	if err := json.Compact(&got, out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}

// 0.1.0 and 0.2.0 can express one address of each family (IPAM-07).
func TestOldVersionsHaveOneAddress(t *testing.T) {
	h := newHost(t)
	const ipam = `"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.3.0/24"}]]`
	_, err := h.call(cni.Add, "0.2.0", "c1", ipam, "")
	if err == nil ||
		err.Error() != "CNI version 0.2.0 does not support more than 1 address per family" {
		t.Errorf("got %v", err)
	}
	if left := h.files(); left != "" {
		t.Errorf("left %s", left)
	}
}

// A second ADD for an attachment is refused, even if it requests an address, and changes nothing;
// another container gets the next address. The error suggests a fix.
func TestSecondAddIsRefused(t *testing.T) {
	h := newHost(t)
	const ipam = `"subnet": "10.1.2.0/24"`
	if got := h.add("c1", ipam, ""); got != "10.1.2.2/24" {
		t.Fatal(got)
	}
	for _, more := range []string{"", `, "runtimeConfig": {"ips": ["10.1.2.77"]}`} {
		const want = "7 failed to allocate for range 0: 10.1.2.2 has been allocated to c1, duplicate allocation is not allowed"
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

// If the second set fails, the address of the first is released.
func TestPartialAllocationIsTakenBack(t *testing.T) {
	h := newHost(t)
	const ipam = `"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "2001:db8:1::/126", "rangeStart": "2001:db8:1::2", "rangeEnd": "2001:db8:1::2"}]]`
	if got := h.add("c1", ipam, ""); got != "10.1.2.2/24 2001:db8:1::2/126" {
		t.Fatal(got)
	}
	if got := h.add("c2", ipam, ""); !strings.HasPrefix(got,
		"11 failed to allocate for range 1: no IP addresses available") {
		t.Error(got)
	}
	if files := h.files(); strings.Contains(files, "c2") {
		t.Errorf("left %s", files)
	}
}

// DEL needs the network name, the directory and the attachment, and also finds an old reservation
// without an interface.
func TestDelGoesByOwner(t *testing.T) {
	h := newHost(t)
	if got := h.add("c1", `"subnet": "10.1.2.0/24"`, ""); got != "10.1.2.2/24" {
		t.Fatal(got)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "mynet", "10.1.2.9"), []byte("old"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, container := range []string{"c1", "old", "never"} {
		if _, err := h.call(cni.Del, "1.1.0", container,
			`"ranges": [[{"subnet": "nonsense", "rangeStart": 7}]], "routes": 5`, ""); err != nil {
			t.Error(err)
		}
	}
	if files := h.files(); strings.Contains(files, "10.1.2.2 ") ||
		strings.Contains(files, "10.1.2.9") {
		t.Errorf("left %s", files)
	}
}

// DEL succeeds for a network with a name that no directory can have, because ADD must have failed.
func TestLongNetworkName(t *testing.T) {
	h := newHost(t)
	long := strings.Repeat("n", 300)
	if _, err := h.call(cni.Add, "1.1.0", "c", `"subnet": "10.1.2.0/24"`,
		`, "name": "`+long+`"`); cni.CodeOf(err) != cni.CodeInvalidConfig ||
		!strings.Contains(cni.AsError(err).Details, "255 bytes") {
		t.Errorf("ADD: %v", err)
	}
	for range 2 {
		if _, err := h.call(cni.Del, "1.1.0", "c", `"subnet": "10.1.2.0/24"`,
			`, "name": "`+long+`"`); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
}

// DEL of one interface, or of one network, leaves the container's other reservations.
func TestPerInterface(t *testing.T) {
	h := newHost(t)
	h.mustAdd("c1", "c2")
	call := func(verb cni.Command, network, ifName string) {
		t.Helper()
		conf := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "type": "x", "ipam": {"type": "host-local", "dataDir": %q, %s}}`,
			network, h.dir, pool)
		env := cni.Env{
			Command: verb, ContainerID: "c1", IfName: ifName, Netns: "/no/such/namespace",
		}
		if _, err := hostlocal.Plugin.Serve(t.Context(), env, []byte(conf), nil); err != nil {
			t.Fatal(err)
		}
	}
	call(cni.Add, "mynet", "eth1")
	call(cni.Add, "other", "eth0")
	call(cni.Del, "mynet", "eth0")
	call(cni.Check, "mynet", "eth1")
	call(cni.Check, "other", "eth0")
	call(cni.Del, "other", "eth0")
	call(cni.Check, "mynet", "eth1")
	if got := h.outcome(cni.Check, "c1", pool,
		""); got != "999 host-local: Failed to find address added by container c1" {
		t.Errorf("CHECK after DEL: %s", got)
	}
}

// Other users cannot read reservations, with any umask.
func TestReservationsAreSecret(t *testing.T) {
	h := newHost(t)
	h.mustAdd("c1")
	for _, name := range []string{"10.1.2.2", "last_reserved_ip.0"} {
		info, err := os.Stat(filepath.Join(h.dir, "mynet", name))
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// The data directory can be a symbolic link, as operators move it to another disk.
func TestLinkedDataDir(t *testing.T) {
	h := newHost(t)
	real := h.dir
	h.dir = filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, h.dir); err != nil {
		t.Fatal(err)
	}
	h.mustAdd("c1")
	h.dir = real
	if got := h.outcome(cni.Check, "c1", pool, ""); got != "" {
		t.Error(got)
	}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.Symlink("/proc/nowhere", broken); err != nil {
		t.Fatal(err)
	}
	h.dir = broken
	if got := h.add("c1", pool, ""); !strings.HasPrefix(got, "5 dataDir: ") ||
		!strings.Contains(got, broken) {
		t.Error(got)
	}
}
