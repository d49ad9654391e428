package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// TestDatabaseDown: without ovsdb-server ADD and CHECK fail with code 11, STATUS with code 50, and
// DEL as long as the namespace exists. When the database is back, the next call removes the port.
func TestDatabaseDown(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*lab){
		"socket missing": func(l *lab) { l.sw.DB.Stop() },
		"socket refuses": func(l *lab) { l.sw.DB.Kill() },
		"no answer":      func(l *lab) { l.sw.DB.Pause() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := start(t, impatient(), header+`,"vlan":5}`)
			l.Container("c")
			before := l.state()
			l.Add("a")
			l.Add("b")
			end(l)
			down := func(verb cni.Command, container string, code cni.Code) {
				t.Helper()
				err := l.Refused(l.Request(verb, container), code)
				plugintest.Says(t, err, "the Open vSwitch database does not answer")
				if hint := cni.AsError(err).Details; !strings.Contains(hint, "start ovsdb-server") {
					t.Errorf("hint %q of %v", hint, err)
				}
			}
			down(cni.Add, "c", cni.CodeTryAgainLater)
			down(cni.Check, "a", cni.CodeTryAgainLater)
			down(cni.Del, "a", cni.CodeInternal)
			down(cni.Status, "a", cni.CodeNotAvailable)
			gone := l.Request(cni.Del, "b")
			l.Remove("b")
			l.Must(gone)
			if name == "no answer" {
				l.sw.DB.Resume()
			} else {
				l.sw.DB.Start()
			}
			l.Must(plugintest.Request{Env: cni.Env{Command: cni.Status, Path: gone.Path}, Conf: l.Conf})
			testnet.Eventually(t, func() error {
				return missing(l, l.sw.VSCtl("--bare", "--columns=name",
					"find", "Port", "external_ids:contID=b"))
			})
			l.Del("a") // also removes the port of b, because its link is gone
			l.Remove("a")
			l.unchanged(before, "after DEL")
		})
	}
}

// TestDatabaseRestarts restarts ovsdb-server again and again while containers come and go. All
// calls succeed, and nothing is left.
func TestDatabaseRestarts(t *testing.T) {
	t.Parallel()
	l := start(t, under, segment)
	names := []string{"a", "b", "c"}
	requests := map[cni.Command][]plugintest.Request{}
	for _, name := range names {
		for _, verb := range []cni.Command{cni.Add, cni.Del} {
			requests[verb] = append(requests[verb], l.Request(verb, name))
		}
	}
	before := l.state()
	done := make(chan struct{})
	var calling sync.WaitGroup
	for i := range names {
		calling.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				for _, verb := range []cni.Command{cni.Add, cni.Del} {
					if _, err := l.Do(t.Context(), requests[verb][i]); err != nil {
						t.Errorf("%s of %s: %v", verb, names[i], err)
						return
					}
				}
				if n%10 == 0 {
					t.Logf("%s: %d times", names[i], n)
				}
			}
		})
	}
	for i := range 6 {
		if i%2 == 0 {
			l.sw.DB.Stop()
		} else {
			l.sw.DB.Kill()
		}
		l.sw.DB.Start()
	}
	close(done)
	calling.Wait()
	l.unchanged(before, "after restarts")
}

// TestDaemonDown: without ovs-vswitchd ADD fails with code 11 and leaves nothing; DEL succeeds.
func TestDaemonDown(t *testing.T) {
	t.Parallel()
	l := start(t, impatient(), segment)
	l.Container("c")
	clean := l.state()
	l.Add("a")
	before := l.state()
	for name, end := range map[string]func(){"dead": l.sw.Daemon.Kill, "hangs": l.sw.Daemon.Pause} {
		end()
		err := l.Refused(l.Request(cni.Add, "c"), cni.CodeTryAgainLater)
		plugintest.Says(t, err, "ovs-vswitchd has not applied the change")
		l.unchanged(before, "after ADD while ovs-vswitchd is "+name)
		if name == "dead" {
			l.sw.Daemon.Start()
		} else {
			l.sw.Daemon.Resume()
		}
	}
	l.sw.Daemon.Kill()
	l.Del("a")
	l.sw.Daemon.Start()
	l.sw.VSCtl("show")
	l.Remove("a")
	l.unchanged(clean, "after DEL without ovs-vswitchd")
}

// TestStatus reports a missing bridge with code 50, unless ADD would create it.
func TestStatus(t *testing.T) {
	t.Parallel()
	l := start(t, under, header+`}`)
	status := l.Collect()
	status.Command = cni.Status
	l.Must(status)
	status.Conf["bridge"] = "absent"
	plugintest.Says(t, l.Refused(status, cni.CodeNotAvailable), "bridge absent: bridge not found")
	q := l.Request(cni.Add, "c")
	q.Conf["bridge"] = "absent"
	plugintest.Says(t, l.Refused(q, cni.CodeInvalidConfig), "ovs-vsctl add-br absent")
	status.Conf["createBridge"] = true
	l.Must(status)
}

// TestCreateBridge creates a bridge once, for containers that come at the same time, and keeps it.
func TestCreateBridge(t *testing.T) {
	t.Parallel()
	l := start(t, under, `{"cniVersion":"1.1.0","name":"net","type":"ovs","bridge":"new0",`+
		`"createBridge":true,"datapathType":"netdev"}`)
	var add []plugintest.Request
	for _, name := range []string{"a", "b", "c", "d"} {
		add = append(add, l.Request(cni.Add, name))
	}
	l.requests(add)
	rows := l.sw.Rows()
	if strings.Count(rows, "netdev,{},new0\n") != 1 || strings.Count(rows, "owner=cni-ovs") != 4 {
		t.Errorf("rows:\n%s", rows)
	}
	l.Must(l.Collect())
	if left := l.sw.VSCtl("list-ports", "new0"); left != "" {
		t.Errorf("ports left: %s", left)
	}
	l.sw.VSCtl("add-port", "ovs0", "uplink", "--", "set", "Interface", "uplink", "type=internal")
	q := l.Request(cni.Add, "e")
	q.Conf["bridge"] = "uplink"
	plugintest.Says(t, l.Refused(q, cni.CodeInvalidConfig), `"uplink" is a port of bridge ovs0`)
}

// TestPort: a port has the requested properties in the database.
func TestPort(t *testing.T) {
	t.Parallel()
	l := start(t, under, header+`,"trunk":[{"id":42},{"minID":1000,"maxID":1002}],"ofport_request":77,`+
		`"isolated":true,"mtu":1400,"args":{"cni":{"ovnPort":"pod-a"}}}`)
	port := l.Add("c").Interfaces[0].Name
	for _, row := range []struct{ table, column, want string }{
		{"Port", "trunks", "[42, 1000, 1001, 1002]"}, {"Port", "vlan_mode", "trunk"},
		{"Port", "tag", "[]"}, {"Port", "protected", "true"},
		{"Interface", "ofport", "77"}, {"Interface", "external_ids:iface-id", "pod-a"},
		{"Interface", "mtu", "1400"},
	} {
		if got := strings.TrimSpace(l.sw.VSCtl("get", row.table, port, row.column)); got != row.want {
			t.Errorf("%s %s: %s, want %s", row.table, row.column, got, row.want)
		}
	}
	l.Check("c")
}

// TestSecondConfiguration takes options from the file at configuration_path, if the network omits
// them.
func TestSecondConfiguration(t *testing.T) {
	t.Parallel()
	l := start(t, under, `{"cniVersion":"1.1.0","name":"net","type":"ovs","vlan":6}`)
	file := filepath.Join(t.TempDir(), "ovs.conf")
	text := `{"socket_file":"` + strings.TrimPrefix(l.sw.Socket(), "unix:") + `","bridge":"ovs0","vlan":5,"mtu":1400}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	delete(l.Conf, "socket_file")
	l.Conf["configuration_path"] = file
	before := l.state()
	port := l.Add("c").Interfaces[0].Name
	if got := l.sw.VSCtl("get", "Port", port, "tag"); got != "6\n" {
		t.Errorf("tag %s", got)
	}
	if got := l.sw.VSCtl("get", "Interface", port, "mtu"); got != "1400\n" {
		t.Errorf("mtu %s", got)
	}
	l.Check("c")
	l.Del("c")
	l.Remove("c")
	l.unchanged(before, "after DEL")
}

// TestTakeover detaches containers of ovs-cni, with and without their namespace, and cleans up after
// containers that vanished without DEL.
func TestTakeover(t *testing.T) {
	t.Parallel()
	l := start(t, under, header+`,"vlan":9}`)
	var prev []string
	clean := l.state()
	for _, name := range []string{"running", "ended", "vanished"} {
		c := l.Container(name)
		port := "veth-" + name
		c.Batch("link add eth0 address 02:00:00:00:00:01 type veth peer name "+port, "link set eth0 up")
		c.Command("ip", "link", "set", port, "netns", l.Host.Path())
		l.Host.Batch("link set " + port + " up")
		l.sw.VSCtl("add-port", "ovs0", port, "tag=9", "vlan_mode=access",
			"external_ids:owner=ovs-cni.network.kubevirt.io", "external_ids:contNetns="+c.Path(),
			"external_ids:contIface=eth0", "external_ids:contPodUid=1")
		prev = append(prev, port)
	}
	check := l.Request(cni.Check, "running")
	check.Conf["prevResult"] = object{"cniVersion": "1.1.0", "interfaces": []any{
		object{"name": prev[0]},
		object{"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": check.Netns},
	}}
	l.Must(check)
	l.Must(l.Collect()) // ports of ovs-cni have no network: GC keeps working ones
	l.Must(check)

	ended := l.Request(cni.Del, "ended")
	l.Remove("ended")
	l.Remove("vanished")
	testnet.Eventually(t, func() error { // the kernel deletes the links in the background
		return missing(l, prev[1], prev[2])
	})
	l.Must(ended)
	running := l.Request(cni.Del, "running")
	l.Must(running)
	l.Must(running)
	l.Remove("running")
	l.unchanged(clean, "after DEL")
}

// missing returns an error unless the switch has noticed that links are gone.
func missing(l *lab, links ...string) error {
	for _, link := range links {
		link = strings.TrimSpace(link)
		if index := l.sw.VSCtl("get", "Interface", link, "ifindex"); index != "0\n" {
			return fmt.Errorf("interface %s: ifindex %s", link, index)
		}
	}
	return nil
}

// TestVanished: ADD removes the port of a container that vanished without DEL, and its segment.
func TestVanished(t *testing.T) {
	t.Parallel()
	l := start(t, under, segment)
	l.Container("b")
	port := l.Add("a").Interfaces[0].Name
	l.Remove("a")
	testnet.Eventually(t, func() error { return missing(l, port) })
	l.Conf["name"], l.Conf["vxlanID"] = "another", 43
	l.Add("b")
	rows := l.sw.Rows()
	if strings.Contains(rows, port) || strings.Contains(rows, "vxlanID=42") || strings.Contains(rows, "cni-vni-42") {
		t.Errorf("rows:\n%s", rows)
	}
}

// TestOldSchema: an Open vSwitch without protected ports accepts plain ports, and refuses tunnels and
// isolated ports with code 2.
func TestOldSchema(t *testing.T) {
	t.Parallel()
	l := start(t, impatient(), header+`,"vlan":5}`)
	var schema object
	text := l.sw.Run("ovsdb-client", "get-schema", l.sw.Socket(), "Open_vSwitch")
	if err := json.Unmarshal([]byte(text), &schema); err != nil {
		t.Fatal(err)
	}
	delete(schema["tables"].(object)["Port"].(object)["columns"].(object), "protected")
	old, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(l.sw.Dir, "old.ovsschema")
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	l.sw.Daemon.Stop()
	l.sw.Run("ovsdb-client", "convert", l.sw.Socket(), path)
	// This ovs-vswitchd does not work with such a database: only the change itself succeeds.
	err = l.Refused(l.Request(cni.Add, "c"), cni.CodeTryAgainLater)
	plugintest.Says(t, err, "ovs-vswitchd has not applied the change")
	for key, value := range map[string]any{"isolated": true, "vxlanRemotes": []any{"192.0.2.2"}} {
		q := l.Request(cni.Add, "other")
		q.Conf[key] = value
		if key == "vxlanRemotes" {
			q.Conf["vxlanID"] = 42
			delete(q.Conf, "vlan")
		}
		plugintest.Says(t, l.Refused(q, cni.CodeUnsupportedField), key)
	}
}

// tunnel returns the name of a tunnel.
func (l *lab) tunnel() string {
	return strings.Fields(l.sw.VSCtl("--bare", "--columns=name", "find", "Port",
		"external_ids:role=tunnel"))[0]
}

// TestRepair restores what another program has removed from the database or changed: the state is
// as before.
func TestRepair(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(l *lab, port string){
		"nothing":       func(*lab, string) {},
		"a port":        func(l *lab, port string) { l.sw.VSCtl("del-port", port) },
		"tag of a port": func(l *lab, port string) { l.sw.VSCtl("set", "Port", port, "tag=99") },
		"the tag": func(l *lab, _ string) {
			l.sw.VSCtl("remove", "Bridge", "ovs0", "external_ids", "cni-vni-42")
		},
		"a tunnel": func(l *lab, _ string) {
			l.sw.VSCtl("del-port", l.tunnel())
		},
		"tag of a tunnel": func(l *lab, _ string) {
			l.sw.VSCtl("set", "Port", l.tunnel(), "tag=99")
		},
		"protection of a tunnel": func(l *lab, _ string) {
			l.sw.VSCtl("set", "Port", l.tunnel(), "protected=false")
		},
		"the bridge": func(l *lab, _ string) {
			l.sw.VSCtl("del-br", "ovs0")
			l.sw.Bridge("ovs0")
			l.sw.VSCtl("set", "Interface", "ovs0", "mtu_request=1500")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := start(t, under, segment)
			l.sw.VSCtl("add-port", "ovs0", "first", "tag=1", "--", "set", "Interface", "first", "type=internal")
			l.Add("other")
			port := l.Add("c").Interfaces[0].Name
			if name != "the bridge" {
				l.sw.VSCtl("del-port", "first") // its tag is free now
			}
			before := l.sw.Rows()
			change(l, port)
			if name != "nothing" {
				l.Refused(l.Request(cni.Check, "c"), cni.CodeInternal)
			}
			for _, container := range []string{"c", "other", "c"} {
				if err := l.Repair(container); err != nil {
					t.Error(err)
				}
			}
			l.Check("c")
			l.Check("other")
			after := l.sw.Rows()
			if name == "the bridge" { // the tag is another one, and the port of the administrator is gone
				if strings.Count(after, "vxlanID=") != strings.Count(before, "vxlanID=") {
					t.Errorf("rows:\n%s", after)
				}
				return
			}
			if diff := testnet.Diff(sorted(before), sorted(after)); diff != "" {
				t.Errorf("repair has changed the state:\n%s", diff)
			}
		})
	}
}
