package hostdevice_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// TestThereAndBack: ADD moves the device into the container and sets it up; DEL restores its former
// state in the host.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	r := lab(t, `,"device":"ens1"`)
	r.Host.Command("ip", "link", "set", "ens1", "alias", "uplink, rack 3")
	before := r.State()
	r.Add("c")
	inside := link(t, r.Container("c"), "eth0")
	if !isUp(inside) || inside["ifalias"] != "ens1" || link(t, r.Host, "ens1") != nil {
		t.Errorf("container has %v, host %v", inside, link(t, r.Host, "ens1"))
	}
	r.Check("c")
	del(t, r, nil)
	r.Unchanged(before)
}

// TestBackFromAnywhere: DEL finds the device despite changes in the container and without its
// namespace.
func TestBackFromAnywhere(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		damage func(*plugintest.Runtime)
		change func(*plugintest.Request)
	}{
		{name: "the device is up"},
		{name: "renamed", damage: func(r *plugintest.Runtime) {
			r.Container("c").
				Batch("link set eth0 down", "link set eth0 name renamed", "link set renamed up")
		}},
		{name: "renamed, with another address", damage: func(r *plugintest.Runtime) {
			r.Container("c").
				Batch("link set eth0 down",
					"link set eth0 name renamed address 02:00:00:00:00:01 mtu 1300")
		}},
		{name: "renamed, without alias", damage: func(r *plugintest.Runtime) {
			r.Container("c").Batch("link set eth0 down", "link set eth0 name renamed")
			r.Container("c").Command("ip", "link", "set", "renamed", "alias", "")
		}},
		{name: "renamed, and an interface of the container has its name",
			damage: func(r *plugintest.Runtime) {
				r.Container("c").Batch("link set eth0 down name nic", "link add eth0 type bridge")
			}},
		{name: "an interface of the container has its name in the host",
			damage: func(r *plugintest.Runtime) {
				r.Container("c").Batch("link add ens1 type veth peer name x")
			}},
		{name: "its alternative name is its name in the host", damage: func(r *plugintest.Runtime) {
			r.Container("c").
				Command("ip", "link", "property", "add", "dev", "eth0", "altname", "ens1")
		}},
		{name: "alternative name, and the namespace no longer exists",
			damage: func(r *plugintest.Runtime) {
				r.Container("c").
					Command("ip", "link", "property", "add", "dev", "eth0", "altname", "ens1")
				r.Container("c").Command("ip", "link", "set", "eth0", "netns", r.Host.Path())
				r.Remove("c")
			}},
		{name: "CNI_NETNS is empty", change: func(q *plugintest.Request) { q.Netns = "" }},
		{name: "the path does not exist", change: func(q *plugintest.Request) {
			q.Netns = "/run/netns/absent"
		}},
		{name: "the kernel moved the device to the host under its name in the container",
			damage: func(r *plugintest.Runtime) {
				r.Container("c").Command("ip", "link", "set", "eth0", "netns", r.Host.Path())
				r.Remove("c")
			}},
		{name: "the kernel moved the device, and CNI_NETNS is empty",
			change: func(q *plugintest.Request) {
				q.Netns = ""
			},
			damage: func(r *plugintest.Runtime) {
				r.Container("c").Command("ip", "link", "set", "eth0", "netns", r.Host.Path())
				r.Remove("c")
			}},
		{name: "the device is already in the host", damage: func(r *plugintest.Runtime) {
			r.Container("c").
				Batch("link set eth0 down", "link set eth0 name ens1",
					"link set ens1 netns "+r.Host.Path())
		}},
		{name: "reduced configuration, no alias", damage: func(r *plugintest.Runtime) {
			r.Container("c").Command("ip", "link", "set", "eth0", "alias", "")
		}, change: func(q *plugintest.Request) { delete(q.Conf, "device") }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, verb := range []cni.Command{cni.Del, cni.GC} {
				r := lab(t, `,"device":"ens1"`+ipam)
				r.Conf["cniVersion"] = "1.1.0"
				r.Container("c").Batch("link add aaa type veth peer name bbb")
				before := testnet.Snapshot(t, []*testnet.Namespace{r.Host})
				r.Add("c")
				if row.damage != nil {
					row.damage(r)
				}
				if verb == cni.Del {
					del(t, r, row.change)
				} else {
					r.Must(r.Collect())
				}
				if diff := testnet.Diff(before, hostWithoutIndex(t, r, before)); diff != "" {
					t.Errorf("after %s: %s", verb, diff)
				}
				if leases, _ := filepath.Glob(filepath.Join(r.Dir, "net", "10.*")); leases != nil {
					t.Errorf("after %s: %q", verb, leases)
				}
			}
		})
	}
}

// TestAltNames: DEL drops an alternative name that the container gave the device and that a link of
// the host has.
func TestAltNames(t *testing.T) {
	t.Parallel()
	r := lab(t, `,"device":"ens1"`)
	r.Host.Batch("link add other type veth peer name another")
	before := testnet.Snapshot(t, []*testnet.Namespace{r.Host})
	r.Add("c")
	r.Container("c").Command("ip", "link", "property", "add", "dev", "eth0", "altname", "other")
	del(t, r, nil)
	if diff := testnet.Diff(before, testnet.Snapshot(t, []*testnet.Namespace{r.Host})); diff != "" {
		t.Error(diff)
	}
}

// TestRenamedNetwork: the network has a new name since ADD (PL-DEL-10). DEL still returns the
// device, unless the container has another namespace now. GC of another network leaves it alone.
func TestRenamedNetwork(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		change func(*plugintest.Runtime, *plugintest.Request)
		stays  bool
	}{
		{name: "the namespace exists"},
		{name: "the namespace no longer exists",
			change: func(r *plugintest.Runtime, q *plugintest.Request) {
				r.Container("c").Command("ip", "link", "set", "eth0", "netns", r.Host.Path())
				r.Remove("c")
				q.Netns = ""
			}},
		{name: "another namespace", stays: true,
			change: func(r *plugintest.Runtime, q *plugintest.Request) {
				q.Netns = r.Container("d").Path()
			}},
		{name: "another container", stays: true,
			change: func(_ *plugintest.Runtime, q *plugintest.Request) {
				q.ContainerID = "other"
			}},
		{name: "another interface", stays: true,
			change: func(_ *plugintest.Runtime, q *plugintest.Request) {
				q.IfName = "eth1"
			}},
		{name: "GC", stays: true, change: func(r *plugintest.Runtime, q *plugintest.Request) {
			*q = r.Collect()
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := lab(t, `,"device":"ens1"`)
			r.Conf["cniVersion"] = "1.1.0"
			r.Container("d")
			before := testnet.Snapshot(t, []*testnet.Namespace{r.Host})
			r.Add("c")
			attached := r.State()
			q := r.Request(cni.Del, "c")
			if row.change != nil {
				row.change(r, &q)
			}
			q.Conf["name"] = "renamed"
			r.Must(q)
			if row.stays {
				r.Unchanged(attached)
				return
			}
			if diff := testnet.Diff(before, hostWithoutIndex(t, r, before)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// hostWithoutIndex returns the state of the host with the former index of the device, because the
// plugin cannot restore the index of a device that the kernel moved.
func hostWithoutIndex(t *testing.T, r *plugintest.Runtime, before string) string {
	t.Helper()
	lines := strings.Split(testnet.Snapshot(t, []*testnet.Namespace{r.Host}), "\n")
	old := strings.Split(before, "\n")
	for i, line := range lines {
		const index = "host link ens1 ifindex "
		if at := slices.IndexFunc(old, func(l string) bool {
			return strings.HasPrefix(l, index)
		}); strings.HasPrefix(line, index) && at >= 0 {
			lines[i] = old[at]
		}
	}
	return strings.Join(lines, "\n")
}

// TestDestroyed: DEL does not wait for a device that was deleted with its namespace, and releases
// the address.
func TestDestroyed(t *testing.T) {
	t.Parallel()
	r := lab(t, `,"device":"ens1"`+ipam)
	r.Add("c")
	r.Container("c").Command("ip", "link", "delete", "eth0")
	r.Remove("c")
	del(t, r, nil)
	if files, _ := filepath.Glob(filepath.Join(r.Dir, "*", "[0-9a-f]*")); slices.ContainsFunc(files,
		func(f string) bool {
			return filepath.Base(f) != "last_reserved_ip.0" && filepath.Base(f) != "lock"
		}) {
		t.Errorf("left %q", files)
	}
	plug(r)
	r.Add("c")
}

// TestNameTakenInHost: if the host has another interface of that name, DEL fails and the device
// stays in the container, up and with its address; IPAM's address is released. DEL succeeds once
// the name is free.
func TestNameTakenInHost(t *testing.T) {
	t.Parallel()
	r := lab(t, `,"device":"ens1"`+ipam)
	before := testnet.Snapshot(t, []*testnet.Namespace{r.Host})
	r.Add("c")
	r.Host.Batch("link add ens1 type veth peer name ens9")
	inside := testnet.Snapshot(t, []*testnet.Namespace{r.Container("c")})
	_, err := r.Do(t.Context(), r.Request(cni.Del, "c"))
	if err == nil ||
		!strings.Contains(err.Error(), `failed to move "ens1" to hostNS: file exists`) {
		t.Errorf("DEL: %v", err)
	}
	if diff := testnet.Diff(inside,
		testnet.Snapshot(t, []*testnet.Namespace{r.Container("c")})); diff != "" {
		t.Errorf("container: %s", diff)
	}
	if !isUp(link(t, r.Container("c"), "eth0")) {
		t.Error("eth0 is down")
	}
	r.Host.Batch("link delete ens1")
	del(t, r, nil)
	if diff := testnet.Diff(before, testnet.Snapshot(t, []*testnet.Namespace{r.Host})); diff != "" {
		t.Errorf("host: %s", diff)
	}
}

// TestSameNames: the container can have an interface with the device's name in the host. The host
// never sees the device under its name in the container.
func TestSameNames(t *testing.T) {
	t.Parallel()
	r := lab(t, `,"device":"ens1"`)
	r.Host.Batch("link add eno1 type veth peer name eno2")
	r.Container("c").Batch("link add ens1 type veth peer name x")
	before := r.State()
	seen := testnet.Uevents(t, r.Host)
	r.Add("c")
	del(t, r, nil)
	r.Unchanged(before)
	if got, want := seen(), []string{"remove ens1", "add ens1"}; !slices.Equal(got, want) {
		t.Errorf("the host saw %q, want %q", got, want)
	}
}

// TestAnotherOwner: after a container is gone, another one gets the device before the late DEL. The
// new container keeps the device, and the record of its state in the host stays.
func TestAnotherOwner(t *testing.T) {
	t.Parallel()
	r := lab(t, `,"device":"ens1"`)
	before := testnet.Snapshot(t, []*testnet.Namespace{r.Host})
	r.Add("c")
	late := r.Request(cni.Del, "c")
	// like the kernel at the end of the namespace
	r.Container("c").Command("ip", "link", "set", "eth0", "netns", r.Host.Path())
	r.Add("b")
	owned := r.State()
	for _, netns := range []string{late.Netns, "", r.Container("b").Path()} {
		late.Netns = netns
		r.Must(late)
		r.Unchanged(owned)
	}
	r.Check("b")
	r.Del("b")
	if diff := testnet.Diff(before, hostWithoutIndex(t, r, before)); diff != "" {
		t.Errorf("host: %s", diff)
	}
}

// TestAlias: without a record, DEL recognises the device by its alias, if the alias is plausible.
func TestAlias(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		alias string
		code  cni.Code // of the error
		says  string
		moves bool
		lent  bool // the device of the configuration is not in the host
	}{
		{name: "name in the host", alias: "ens7", moves: true},
		{name: "none, an interface of the container's own"},
		{name: "none", says: `failed to find original ifname for "eth0" (alias is not set)`,
			code: cni.CodeInternal, lent: true},
		{name: "invalid as a name", alias: "uplink to rack 3",
			says: "not a valid name of a device in the host", code: cni.CodeInvalidEnvironment},
		{name: "of another attachment",
			alias: cni.Attachment{Network: "net", Container: "b", IfName: "eth0"}.Tag()},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := lab(t, `,"device":"ens1"`)
			r.Container("c").Batch("link add eth0 type veth peer name x")
			if row.lent {
				r.Host.Command("ip", "link", "delete", "ens1")
			}
			if row.alias != "" {
				r.Container("c").Command("ip", "link", "set", "eth0", "alias", row.alias)
			}
			_, err := r.Do(t.Context(), r.Request(cni.Del, "c"))
			if (err == nil) != (row.says == "") || err != nil &&
				!strings.Contains(err.Error(), row.says) {
				t.Errorf("%v, want %q", err, row.says)
			}
			if moved := link(t, r.Host, "ens7") != nil; moved != row.moves ||
				moved == (link(t, r.Container("c"), "eth0") != nil) {
				t.Errorf("host has %v", link(t, r.Host, "ens7"))
			}
		})
	}
}

// TestFallenUpstream: a device that upstream moved and the kernel moved back to the host gets the
// name in its alias, if it is the device of the configuration and down.
func TestFallenUpstream(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, alias, want string
		commands          []string
	}{
		{name: "its name", alias: "ens1", want: "ens1"},
		{name: "another device", alias: "ens2", want: "eth0"},
		{name: "in use", alias: "ens1", commands: []string{"link set eth0 up"}, want: "eth0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := lab(t, `,"device":"ens1"`)
			r.Host.Batch(append([]string{"link set ens1 down", "link set ens1 name eth0",
				"link set eth0 alias " + row.alias}, row.commands...)...)
			r.Remove("c")
			del(t, r, func(q *plugintest.Request) { q.Netns = "" })
			if link(t, r.Host, row.want) == nil {
				t.Errorf("the host has no link %s", row.want)
			}
		})
	}
}

// TestTakeover: each implementation returns the device that the other one has moved.
func TestTakeover(t *testing.T) {
	t.Parallel()
	const upstream = "/usr/lib/cni"
	testnet.Require(t, testnet.Tool(filepath.Join(upstream, "host-device")))
	for _, first := range []string{"upstream", "tenon"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			r := lab(t, `,"device":"ens1"`+ipam)
			who := map[bool]func(plugintest.Request) []byte{
				true:  func(q plugintest.Request) []byte { return r.Foreign(upstream, q) },
				false: func(q plugintest.Request) []byte { return r.Must(q) },
			}
			result := who[first == "upstream"](r.Request(cni.Add, "c"))
			if inside := link(t, r.Container("c"), "eth0"); inside["ifalias"] != "ens1" ||
				!isUp(inside) {
				t.Errorf("%v\n%s", inside, result)
			}
			who[first != "upstream"](r.Request(cni.Del, "c"))
			back := link(t, r.Host, "ens1")
			// upstream does not remove the alias
			if back == nil || isUp(back) || first == "upstream" && back["ifalias"] != nil {
				t.Errorf("back is %v", back)
			}
			if first == "tenon" { // the next use of the device removes Tenon's record
				r.Container("d")
				r.Add("d")
				r.Must(r.Request(cni.Del, "c"))
				r.Check("d")
				r.Del("d")
			}
			if files, err := os.ReadDir(r.Conf["dataDir"].(string)); err != nil || len(files) > 0 {
				t.Errorf("records left: %v, %v", files, err)
			}
		})
	}
}

// TestFailedAdd: a failed ADD restores the device in the host with its addresses, routes and state.
func TestFailedAdd(t *testing.T) {
	t.Parallel()
	r := lab(t,
		`,"device":"ens1","ipam":{"type":"static","addresses":[{"address":"10.96.0.7/24"}],"routes":[{"dst":"192.0.2.0/24","gw":"10.99.0.1"}]}`)
	r.Host.Batch("route add default via 198.51.100.254", "route add 10.7.0.0/16 dev ens1 table 77",
		"route add default via fd00:51::fe")
	before := r.State()
	q := r.Request(cni.Add, "c")
	r.Refused(q, cni.CodeInvalidConfig)
	r.Unchanged(before)
}

// TestOwnNamespace: with CNI_NETNS_OVERRIDE, the container can be the plugin's own namespace, and ADD
// and DEL do not wait for each other's lock (ENV-16).
func TestOwnNamespace(t *testing.T) {
	t.Parallel()
	r := lab(t, `,"device":"ens1"`)
	before := r.State()
	for _, verb := range []cni.Command{cni.Add, cni.Del} {
		q := r.Request(verb, "c")
		q.Netns, q.NetnsOverride = r.Host.Path(), "1"
		r.Must(q)
		if inside := link(t, r.Host, "eth0") != nil; inside != (verb == cni.Add) {
			t.Errorf("after %s, eth0 exists: %v", verb, inside)
		}
	}
	r.Unchanged(before)
}
