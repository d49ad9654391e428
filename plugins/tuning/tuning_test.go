package tuning_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/tuning"
)

// runtime creates a runtime for a configuration with these members.
func runtime(t *testing.T, members string) *plugintest.Runtime {
	t.Helper()
	r := plugintest.NewRuntime(t, tuning.Plugin,
		`{"cniVersion":"1.1.0","name":"net","type":"tuning"`+members+`}`)
	r.Conf["dataDir"] = filepath.Join(r.Dir, "a", "tuning")
	return r
}

// iface holds the output of ip for a container's interface.
type iface struct {
	Address     string
	MTU, TxQLen int
	Promiscuity int
	AllMulti    int
	Flags       []string
}

func show(t *testing.T, r *plugintest.Runtime, container string) iface {
	t.Helper()
	var links []iface
	out := r.Container(container).Command("ip", "-j", "-d", "link", "show", "dev", "eth0")
	if err := json.Unmarshal([]byte(out), &links); err != nil || len(links) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	return links[0]
}

func value(r *plugintest.Runtime, container, key string) string {
	return strings.TrimSpace(r.Container(container).Command("sysctl", "-n", key))
}

// remembered returns the content of a container's file in dataDir, or "" if it does not exist.
func remembered(t *testing.T, r *plugintest.Runtime, container string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(r.Conf["dataDir"].(string), container+"_eth0.json"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(content)
}

// TestAttributes: each attribute, from the configuration and from the arguments, and all together:
// ADD changes and reports it, CHECK accepts it, the saved values have upstream's form, DEL restores
// and deletes them.
func TestAttributes(t *testing.T) {
	t.Parallel()
	const all = `"promisc":true,"mtu":1454,"txQLen":20000,"mac":"02:01:02:03:04:05","allmulti":true`
	for _, row := range []struct {
		members, file string
		changed       func(*iface)
	}{
		{`"promisc":true`, "{\n \"promisc\": false\n}", func(i *iface) { i.Promiscuity = 1 }},
		{`"mtu":1454`, "{\n \"mtu\": 1500\n}", func(i *iface) { i.MTU = 1454 }},
		{`"txQLen":20000`, "{\n \"txQLen\": 1000\n}", func(i *iface) { i.TxQLen = 20000 }},
		{`"txQLen":0`, "{\n \"txQLen\": 1000\n}", func(i *iface) { i.TxQLen = 0 }},
		{`"mac":"02:01:02:03:04:05"`, "{\n \"mac\": \"MAC\"\n}", func(i *iface) {
			i.Address = "02:01:02:03:04:05"
		}},
		{`"allmulti":true`, "{\n \"allmulti\": false\n}", func(i *iface) { i.AllMulti = 1 }},
		{all,
			"{\n \"mac\": \"MAC\",\n \"promisc\": false,\n \"mtu\": 1500,\n \"allmulti\": false,\n \"txQLen\": 1000\n}", func(i *iface) {
				*i = iface{
					Address: "02:01:02:03:04:05", MTU: 1454, TxQLen: 20000, Promiscuity: 1, AllMulti: 1,
				}
			}},
		{`"promisc":false,"mtu":0`, "", func(*iface) {}},
	} {
		for place, format := range map[string]string{
			"configuration": ",%s", "args": `,"args":{"cni":{%s}}`,
		} {
			t.Run(row.members+" from "+place, func(t *testing.T) {
				t.Parallel()
				r := runtime(t, fmt.Sprintf(format, row.members))
				before := show(t, r, "c")
				want := before
				row.changed(&want)
				result := r.Add("c")
				got := show(t, r, "c")
				want.Flags = got.Flags
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
				inside, ok := result.Sandboxed("eth0", r.Container("c").Path())
				if x := result.Interfaces[inside]; !ok || x.MAC != got.Address || x.MTU != got.MTU {
					t.Errorf("result %+v", x)
				}
				if diff := cmp.Diff(strings.Replace(row.file, "MAC", before.Address, 1),
					remembered(t, r, "c")); diff != "" {
					t.Error(diff)
				}
				r.Check("c")
				r.Del("c")
				if diff := cmp.Diff(before, show(t, r, "c")); diff != "" ||
					remembered(t, r, "c") != "" {
					t.Errorf("after DEL: file %q, %s", remembered(t, r, "c"), diff)
				}
			})
		}
	}
}

// TestAllMultiOff: an enabled mode can be disabled, and DEL enables it again.
func TestAllMultiOff(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"allmulti":false`)
	r.Container("c").Command("ip", "link", "set", "eth0", "allmulticast", "on")
	for range 2 {
		r.Add("c")
		if show(t, r, "c").AllMulti != 0 {
			t.Error("it is on after ADD")
		}
		r.Check("c")
		r.Del("c")
		if show(t, r, "c").AllMulti != 1 {
			t.Error("it is off after DEL")
		}
	}
}

// TestMAC: precedence of the sources of a MAC address; the test removes one source after the other.
// The result contains the requested text. As in upstream tuning, args take precedence over the
// capability.
func TestMAC(t *testing.T) {
	t.Parallel()
	r := runtime(t,
		`,"mac":"02:00:00:00:00:01","runtimeConfig":{"mac":"02-00-00-00-00-03"},"args":{"cni":{"mac":"02:00:00:00:00:0A"}}`)
	args := "IgnoreUnknown=1;K8S_POD_NAME=x;MAC=02:00:00:00:00:02"
	for _, step := range []struct {
		want string
		drop func()
	}{
		{"02:00:00:00:00:0A", func() { delete(r.Conf, "args") }},
		{"02-00-00-00-00-03", func() { delete(r.Conf, "runtimeConfig") }},
		{"02:00:00:00:00:02", func() { args = "" }},
		{"02:00:00:00:00:01", func() { delete(r.Conf, "mac") }},
		{show(t, r, "c").Address, func() {}},
	} {
		q := r.Request(cni.Add, "c")
		q.Args = args
		result, err := cni.DecodeResultStrict(r.Must(q), 0)
		if err != nil {
			t.Fatal(err)
		}
		i, _ := result.Sandboxed("eth0", q.Netns)
		if got := result.Interfaces[i].MAC; got != step.want {
			t.Errorf("result has %s, want %s", got, step.want)
		}
		if got, want := show(t, r, "c").
			Address, strings.ToLower(strings.ReplaceAll(step.want, "-", ":")); got != want {
			t.Errorf("interface has %s, want %s", got, want)
		}
		q.Command, q.Conf["prevResult"] = cni.Check, result
		encoded, _ := result.Encode(cni.V110)
		q.Conf["prevResult"] = json.RawMessage(encoded)
		r.Must(q) // in any form and case
		q.Command = cni.Del
		r.Must(q)
		step.drop()
	}
	q := r.Request(cni.Add, "c")
	q.Args = "K8S_POD_NAME=x"
	r.Refused(q, cni.CodeInvalidEnvironment)
}

// TestResult: only the entry of this container's interface changes, and no entry of a host
// interface with the same name.
func TestResult(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mac":"02:00:00:00:00:01","mtu":1400`)
	alias := filepath.Join(t.TempDir(), "netns")
	if err := os.Symlink(r.Container("c").Path(), alias); err != nil {
		t.Fatal(err)
	}
	const unknown = "netns"
	ours, other := r.Container("c").Path(), r.Container("other").Path()
	for _, row := range []struct {
		name      string
		sandboxes []string // of interfaces of that name
		changed   int
	}{
		{"ours and another container's", []string{other, ours}, 1},
		{"ours and the host's", []string{"", ours}, 1},
		{"ours by another path (RES-10)", []string{unknown, "", alias}, 2},
		{"no sandbox is known (RES-10)", []string{other, ""}, 1},
		{"sandbox does not exist (RES-10)", []string{unknown, ""}, 0},
		{"another container's", []string{other}, -1},
	} {
		q := r.Request(cni.Add, "c")
		prev := &cni.Result{}
		for _, sandbox := range row.sandboxes {
			prev.Interfaces = append(prev.Interfaces, cni.Interface{
				Name: "eth0", MAC: "02:99:00:00:00:00", Sandbox: sandbox,
			})
		}
		for version, mtu := range map[cni.Version]int{cni.V110: 1400, cni.V100: 0} {
			encoded, err := prev.Encode(version)
			if err != nil {
				t.Fatal(err)
			}
			q.Conf["cniVersion"], q.Conf["prevResult"] = version.String(), json.RawMessage(encoded)
			want := prev.Clone()
			if row.changed >= 0 {
				want.Interfaces[row.changed].MAC, want.Interfaces[row.changed].MTU = "02:00:00:00:00:01", mtu
			}
			got, err := cni.DecodeResultStrict(r.Must(q), version)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Interfaces, got.Interfaces); diff != "" {
				t.Errorf("%s, %v: %s", row.name, version, diff)
			}
		}
	}
}

// TestRoutesStay: a new MAC address keeps the routes of both families.
func TestRoutesStay(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mac":"02:00:00:00:00:01"`)
	c := r.Container("c")
	c.Command("ip", "route", "add", "10.77.0.0/16", "via", "10.88.0.1", "metric", "7")
	c.Command("ip", "-6", "route", "add", "fd00:77::/32", "via", "fd00:88::1")
	routes := func() string {
		lines := strings.Split(c.Command("ip", "route")+c.Command("ip", "-6", "route"), "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	before := routes()
	if strings.Count(before, "default") != 2 {
		t.Fatal(before)
	}
	r.Add("c")
	if diff := cmp.Diff(before, routes()); diff != "" {
		t.Error(diff)
	}
	r.Del("c")
	if diff := cmp.Diff(before, routes()); diff != "" {
		t.Error(diff)
	}
}

// TestInvalid: values that no interface can have are refused before any change.
func TestInvalid(t *testing.T) {
	t.Parallel()
	for members, says := range map[string]string{
		`"mac":"02:00:00:00:00"`:                      "02:00:00:00:00",
		`"args":{"cni":{"mac":"x"}}`:                  "x",
		`"runtimeConfig":{"mac":"y"}`:                 "y",
		`"mtu":-1`:                                    "mtu",
		`"mtu":65536`:                                 "mtu",
		`"txQLen":-1`:                                 "txQLen",
		`"args":{"cni":{"txQLen":4294967296}}`:        "txQLen",
		`"args":{"cni":{"sysctl":{"kernel.x":"1"}}}`:  `"kernel/x"`,
		`"promisc":true,"sysctl":{"net.ipv4.x": "="}`: "net.ipv4.x",
	} {
		r := runtime(t, ","+members)
		r.Container("c")
		before := r.State()
		if err := r.Refused(r.Request(cni.Add, "c"), cni.CodeInvalidConfig); err != nil &&
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", members, err)
		}
		r.Unchanged(before)
	}
}

// TestKernelRefuses: if the kernel refuses a value, earlier changes are undone, including files.
func TestKernelRefuses(t *testing.T) {
	t.Parallel()
	r := runtime(t,
		`,"sysctl":{"net.core.somaxconn":"99"},"mac":"02:00:00:00:00:01","promisc":true,"mtu":60`)
	r.Container("c")
	before := r.State()
	q := r.Request(cni.Add, "c")
	_, err := r.Do(t.Context(), q)
	if err == nil || !strings.Contains(err.Error(), "mtu 60 dev eth0") {
		t.Errorf("%v", err)
	}
	// directories may stay, files may not
	if err := os.RemoveAll(filepath.Join(r.Dir, "a")); err != nil {
		t.Fatal(err)
	}
	r.Unchanged(before)
}

// TestNoInterface: without the interface attributes cannot be changed, but sysctls can. Names with
// a slash are invalid.
func TestNoInterface(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mtu":1400,"sysctl":{"net.core.somaxconn":"99"}`)
	r.Container("c").Command("ip", "link", "delete", "eth0")
	before := r.State()
	if _, err := r.Do(t.Context(), r.Request(cni.Add, "c")); err == nil ||
		!strings.Contains(err.Error(), `"eth0"`) {
		t.Errorf("%v", err)
	}
	r.Unchanged(before)
	delete(r.Conf, "mtu")
	r.Must(r.Request(cni.Add, "c"))
	if got := value(r, "c", "net.core.somaxconn"); got != "99" {
		t.Errorf("somaxconn %s", got)
	}
	q := r.Request(cni.Add, "c")
	q.IfName = "a/b"
	r.Refused(q, cni.CodeInvalidEnvironment)
}

// TestNotOurs: settings outside the configuration are ignored: CHECK accepts promiscuous mode that
// another program enabled, and DEL leaves it on.
func TestNotOurs(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mtu":1400`)
	r.Add("c")
	r.Container("c").Command("ip", "link", "set", "eth0", "promisc", "on", "allmulticast", "on")
	r.Check("c")
	r.Del("c")
	if got := show(t, r, "c"); got.Promiscuity != 1 || got.AllMulti != 1 || got.MTU != 1500 {
		t.Errorf("%+v", got)
	}
}
