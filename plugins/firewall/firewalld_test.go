package firewall_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/firewall"
)

// startBus starts a private system bus, at which the plugin looks for firewalld, and returns its
// address.
func startBus(t *testing.T) string {
	t.Helper()
	testnet.Require(t, testnet.Tool("dbus-daemon"))
	dir, err := os.MkdirTemp("", "bus") // a bus address is too short for the name of a test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	address := "unix:path=" + filepath.Join(dir, "bus")
	conf := filepath.Join(dir, "bus.conf")
	err = os.WriteFile(conf, []byte(`<busconfig><type>system</type><listen>`+address+`</listen><auth>EXTERNAL</auth>
		<policy context="default"><allow user="*"/><allow own="*"/><allow send_type="method_call"/>
		<allow send_destination="*" eavesdrop="true"/><allow receive_sender="*"/></policy></busconfig>`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	start(t, exec.Command("dbus-daemon", "--config-file="+conf, "--nofork", "--nopidfile",
		"--print-address=1"))
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", address)
	return address
}

// start starts a process that ends with the test, and waits for its first line.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%s: %v", cmd.Path, err)
	}
}

// fake is a service that imitates firewalld: it holds the sources of zones, and records the calls.
type fake struct {
	mu      sync.Mutex
	sources []string // zone and address
	calls   []string
	fail    string // the exception that addSource raises
	keep    string // the exception that removeSource raises
	deny    string // the name of the exception that all methods raise
}

func exception(text string) *dbus.Error {
	return dbus.NewError("org.fedoraproject.FirewallD1.Exception", []any{text})
}

func (f *fake) note(method, zone, source string) (entry string, there bool) {
	f.calls = append(f.calls, fmt.Sprintf("%s %s %s", method, zone, source))
	entry = zone + " " + source
	return entry, slices.Contains(f.sources, entry)
}

// AddSource is a method of the D-Bus interface.
func (f *fake) AddSource(zone, source string) (string, *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	entry, there := f.note("add", zone, source)
	switch {
	case f.deny != "":
		return "", dbus.NewError(f.deny, []any{"Not Authorized(uid)"})
	case f.fail != "" && strings.Contains(source, ":"):
		return "", exception(f.fail)
	case there:
		return "", exception("ZONE_ALREADY_SET: '" + source + "' already bound to '" + zone + "'")
	}
	f.sources = append(f.sources, entry)
	return zone, nil
}

// RemoveSource is a method of the D-Bus interface.
func (f *fake) RemoveSource(zone, source string) (string, *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	entry, there := f.note("remove", zone, source)
	if f.deny != "" {
		return "", dbus.NewError(f.deny, []any{"Not Authorized(uid)"})
	}
	if f.keep != "" {
		return "", exception(f.keep)
	}
	if !there {
		return "", exception("UNKNOWN_SOURCE: '" + source + "' is not in any zone")
	}
	f.sources = slices.DeleteFunc(f.sources, func(s string) bool { return s == entry })
	return zone, nil
}

// QuerySource is a method of the D-Bus interface.
func (f *fake) QuerySource(zone, source string) (bool, *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deny != "" {
		return false, dbus.NewError(f.deny, []any{"Not Authorized(uid)"})
	}
	if source == "192.0.2.1/32" { // only asks whether it may ask
		return false, nil
	}
	_, there := f.note("query", zone, source)
	return there, nil
}

// did compares the calls since the last comparison.
func (f *fake) did(t *testing.T, want ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if diff := cmp.Diff(want, f.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	f.calls = nil
}

// set changes the state of the service.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// expect compares the sources.
func (f *fake) expect(t *testing.T, want ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.sources, want) {
		t.Errorf("sources %q, want %q", f.sources, want)
	}
}

// startFake registers the service on a bus.
func startFake(t *testing.T) *fake {
	t.Helper()
	bus, err := dbus.Connect(startBus(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	f := new(fake)
	names := map[string]string{
		"AddSource": "addSource", "RemoveSource": "removeSource", "QuerySource": "querySource",
	}
	err = bus.ExportWithMap(f, names, "/org/fedoraproject/FirewallD1",
		"org.fedoraproject.FirewallD1.zone")
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := bus.RequestName("org.fedoraproject.FirewallD1",
		dbus.NameFlagDoNotQueue); reply != dbus.RequestNameReplyPrimaryOwner || err != nil {
		t.Fatal(reply, err)
	}
	return f
}

// sourcesOfA are the fake's sources for container a.
var sourcesOfA = []string{"trusted 10.9.0.2/32", "trusted fd00:9::2/128"}

// TestFirewalld: the plugin finds firewalld if it runs, and makes upstream's calls. Unlike
// upstream, CHECK evaluates the answer.
func TestFirewalld(t *testing.T) {
	for _, backend := range []string{"auto", "firewalld", "ipfw"} {
		t.Run(backend, func(t *testing.T) {
			f := startFake(t)
			l := newLab(t, fmt.Sprintf(`,"backend":%q`, backend), "br0")
			l.plug("a", "br0", 0, 2)
			l.add("a")
			f.did(t, "add trusted 10.9.0.2/32", "add trusted fd00:9::2/128")
			l.check("a")
			f.did(t, "query trusted 10.9.0.2/32", "query trusted fd00:9::2/128")
			l.add("a") // the address is already in the zone
			f.expect(t, sourcesOfA...)
			if out := l.Host.Command("nft", "list", "ruleset"); strings.Contains(out,
				"CNI-FORWARD") {
				t.Error("the plugin uses iptables")
			}
			f.set(func() { f.sources = f.sources[:1] })
			l.checkFails("a", "fd00:9::2")
			f.set(func() { f.calls = nil })
			l.del("a")
			f.did(t, "remove trusted 10.9.0.2/32", "remove trusted fd00:9::2/128")
			l.del("a")
			f.expect(t)
		})
	}
}

// TestFirewalldZone: another zone, and policies in addition, which use nftables.
func TestFirewalldZone(t *testing.T) {
	f := startFake(t)
	l := two(t, `,"firewalldZone":"containers","zone":"ignored"`+isolated)
	l.add("a", "b")
	l.check("a", "b")
	l.matrix("a: outside", "b: outside")
	f.expect(t, "containers 10.9.0.2/32", "containers fd00:9::2/128", "containers 10.9.0.3/32",
		"containers fd00:9::3/128")
	l.del("a", "b")
	f.expect(t)
}

// TestFirewalldReuse: a late DEL keeps the sources of a container that now has the address, and DEL
// works without a previous result.
func TestFirewalldReuse(t *testing.T) {
	f := startFake(t)
	l := reuse(t, "")
	l.add("old", "new")
	l.del("old")
	f.expect(t, sourcesOfA...)
	l.check("new")
	bare := l.request(cni.Del, "new", "")
	delete(bare.Conf, "prevResult")
	l.Must(bare)
	f.expect(t)
}

// TestFirewalldOfTheReference: DEL removes the sources that the upstream plugin added.
func TestFirewalldOfTheReference(t *testing.T) {
	testnet.Require(t, testnet.Tool("/usr/lib/cni/firewall"))
	f := startFake(t)
	l := newLab(t, "", "br0")
	l.plug("a", "br0", 0, 2)
	l.Foreign("/usr/lib/cni", l.request(cni.Add, "a", ""))
	f.expect(t, sourcesOfA...)
	l.del("a")
	f.expect(t)
}

// TestFirewalldFails: a failed ADD removes the sources that it added, and no others.
func TestFirewalldFails(t *testing.T) {
	f := startFake(t)
	l := newLab(t, "", "br0")
	l.plug("a", "br0", 0, 2)
	f.set(func() { f.fail = "INVALID_ZONE: trusted" })
	before := l.State()
	err := l.Refused(l.request(cni.Add, "a", ""), cni.CodeInternal)
	if err != nil && !strings.Contains(err.Error(), "INVALID_ZONE") {
		t.Error(err)
	}
	f.expect(t)
	f.set(func() { f.sources = sourcesOfA[:1] })
	l.Refused(l.request(cni.Add, "a", ""), cni.CodeInternal)
	f.expect(t, sourcesOfA[0])
	l.Host.Command("nft", "flush", "ruleset")
	l.Unchanged(before)
}

// TestFirewalldKeeps: DEL succeeds if firewalld refuses to remove a source, and warns about each
// source that stays.
func TestFirewalldKeeps(t *testing.T) {
	f := startFake(t)
	l := newLab(t, "", "br0")
	l.plug("a", "br0", 0, 2)
	l.add("a")
	f.set(func() {
		f.keep = "COMMAND_FAILED: 'python-nftables' failed"
		f.sources = f.sources[:1] // the other one is removed despite the answer
	})
	log := l.logged(l.request(cni.Del, "a", ""))
	if !strings.Contains(log, "10.9.0.2") || !strings.Contains(log, "COMMAND_FAILED") ||
		strings.Contains(log, "fd00:9::2") {
		t.Errorf("log: %s", log)
	}
	if out := l.Host.Command("nft", "list", "ruleset"); strings.Contains(out, "10.9.0.2") {
		t.Errorf("elements are left:\n%s", out)
	}
	f.set(func() { f.keep = "" })
	l.del("a")
	f.expect(t)
}

// logged makes a call, which must succeed, and returns the plugin's log.
func (l *lab) logged(q plugintest.Request) string {
	l.t.Helper()
	stdin, err := json.Marshal(q.Conf)
	if err != nil {
		l.t.Fatal(err)
	}
	var log bytes.Buffer
	caller := plugin.Linked{Plugins: []plugin.Definition{firewall.Plugin},
		Log: slog.New(slog.NewTextHandler(&log, nil))}
	err = l.Host.Run(func() error {
		_, err := caller.Call(l.t.Context(), invoke.Call{
			Path: invoke.LinkedPath("firewall"), Env: q.Env, Stdin: stdin,
		})
		return err
	})
	if err != nil {
		l.t.Error(err)
	}
	return log.String()
}

// TestFirewalldNotRunning: the plugin does not choose firewalld unless it runs, and fails if the
// configuration demands it.
func TestFirewalldNotRunning(t *testing.T) {
	startBus(t)
	l := newLab(t, "", "br0")
	l.plug("a", "br0", 0, 2)
	l.add("a")
	l.check("a")
	l.del("a")
	named := `,"backend":"firewalld"`
	if err := l.Refused(l.request(cni.Add, "a", named), cni.CodeUnsupportedField); err != nil &&
		!strings.Contains(err.Error(), "not running") {
		t.Error(err)
	}
	l.Must(l.request(cni.Del, "a", named))
	status := l.request(cni.Status, "a", named)
	status.Conf["cniVersion"] = "1.1.0"
	delete(status.Conf, "prevResult")
	if _, err := l.Do(t.Context(), status); cni.CodeOf(err) != cni.CodeNotAvailable ||
		!strings.Contains(err.Error(), "not running") {
		t.Errorf("STATUS: %v", err)
	}
}

// TestFirewalldDenies: if firewalld denies the plugin all access, as it does to rootless containers,
// the plugin chooses another backend, or fails if the configuration demands firewalld.
func TestFirewalldDenies(t *testing.T) {
	for _, name := range []string{
		"org.fedoraproject.slip.dbus.service.PolKit.NotAuthorizedException.org.fedoraproject.FirewallD1.config",
		"org.fedoraproject.FirewallD1.NotAuthorizedException", "org.freedesktop.DBus.Error.AccessDenied",
	} {
		f := startFake(t)
		f.set(func() { f.deny = name })
		l := newLab(t, "", "br0")
		l.plug("a", "br0", 0, 2)
		l.add("a")
		l.check("a")
		if err := l.status(""); err != nil {
			t.Errorf("STATUS: %v", err)
		}
		l.del("a")
		f.did(t, "remove trusted 10.9.0.2/32")
		named := `,"backend":"firewalld"`
		err := l.Refused(l.request(cni.Add, "a", named), cni.CodeIOFailure)
		plugintest.Says(t, err, "polkit")
		if err := l.status(named); cni.CodeOf(err) != cni.CodeNotAvailable {
			t.Errorf("STATUS: %v", err)
		}
		l.Must(l.request(cni.Del, "a", named))
	}
}

// TestFirewalldHangs: ADD, CHECK, DEL and STATUS fail soon if firewalld does not answer, because its
// rules are in force.
func TestFirewalldHangs(t *testing.T) {
	bus, err := dbus.Connect(startBus(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	if _, err := bus.RequestName("org.fedoraproject.FirewallD1", dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	hung := make(chan *dbus.Message, 100)
	bus.Eavesdrop(hung) // takes the calls, and answers none
	l := newLab(t, "", "br0")
	l.plug("a", "br0", 0, 2)
	for _, backend := range []string{"", `,"backend":"firewalld"`} {
		begin := time.Now()
		plugintest.Says(t, l.Refused(l.request(cni.Add, "a", backend), cni.CodeIOFailure), "does not answer")
		if err := l.status(backend); cni.CodeOf(err) != cni.CodeNotAvailable {
			t.Errorf("STATUS: %v", err)
		}
		l.Refused(l.request(cni.Del, "a", backend), cni.CodeIOFailure)
		if d := time.Since(begin); d > testnet.Patience {
			t.Errorf("took %s", d)
		}
	}
}

// status runs STATUS with additional members of the configuration.
func (l *lab) status(members string) error {
	l.t.Helper()
	q := l.request(cni.Status, "a", members)
	q.Conf["cniVersion"] = "1.1.0"
	delete(q.Conf, "prevResult")
	_, err := l.Do(l.t.Context(), q)
	return err
}

// TestFirewalldBusHangs: the plugin does not wait for ever for a bus that does not answer.
func TestFirewalldBusHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bus")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 5); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+path)
	l := newLab(t, "", "br0")
	l.plug("a", "br0", 0, 2)
	begin := time.Now()
	l.add("a")
	l.del("a")
	if d := time.Since(begin); d > testnet.Patience {
		t.Errorf("took %s", d)
	}
}

// TestRealFirewalld runs the real firewalld in a namespace, where it drops packets of unknown
// sources.
func TestRealFirewalld(t *testing.T) {
	testnet.Require(t, testnet.Tool("firewalld"), testnet.Tool("unshare"))
	l := newLab(t, "", "br0")
	l.plug("a", "br0", 0, 2)
	l.plug("b", "br0", 0, 3)
	l.outside()
	startFirewalld(t, l)
	l.matrix("a: ", "outside: ")
	l.add("a")
	l.check("a")
	l.matrix("a: outside", "outside: ")
	if out := l.Host.Command("nft", "list", "table", "inet", "firewalld"); !strings.Contains(out,
		"10.9.0.2") || !strings.Contains(out, "fd00:9::2") {
		t.Error("the addresses are in no zone of firewalld")
	}
	l.add("a")
	l.matrix("b: ", "outside: ")
	l.del("a")
	l.del("a")
	l.inNoZone()
}

// inNoZone fails the test if firewalld has rules for an address of a container. A ping would not
// detect them, because established connections continue.
func (l *lab) inNoZone() {
	l.t.Helper()
	if out := l.Host.Command("nft", "list", "table", "inet", "firewalld"); strings.Contains(out,
		"10.9.0.") || strings.Contains(out, "fd00:9:") {
		l.t.Errorf("addresses are in a zone of firewalld:\n%s", out)
	}
}

// TestRealFirewalldFlushed: after nft flush ruleset firewalld cannot remove the rules of a source,
// and keeps the source. DEL succeeds with a warning; after reloads everything works again.
func TestRealFirewalldFlushed(t *testing.T) {
	testnet.Require(t, testnet.Tool("firewalld"), testnet.Tool("unshare"))
	l := newLab(t, "", "br0")
	l.plug("a", "br0", 0, 2)
	l.plug("b", "br0", 0, 3)
	l.outside()
	service := startFirewalld(t, l)
	l.add("a", "b")
	l.Host.Command("nft", "flush", "ruleset")
	if log := l.logged(l.request(cni.Del, "a", "")); !strings.Contains(log, "10.9.0.2") ||
		!strings.Contains(log, "restart") {
		t.Errorf("DEL warns: %s", log)
	}
	l.del("a")
	var err error
	for range 5 { // reloads fail until firewalld has forgotten all tables that were flushed
		if err = service.Call("org.fedoraproject.FirewallD1.reload", 0).Err; err == nil {
			break
		}
		t.Log("reload: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if log := l.logged(l.request(cni.Del, "a", "")); log != "" {
		t.Errorf("DEL after the reload warns: %s", log)
	}
	l.del("b") // the reload has removed its source
	l.matrix("a: ", "outside: ")
	l.add("a")
	l.matrix("a: outside", "outside: ")
	l.del("a")
	l.inNoZone()
}

// startFirewalld starts firewalld on the host with private directories and a private bus, and
// returns it as an object of that bus.
func startFirewalld(t *testing.T, l *lab) dbus.BusObject {
	t.Helper()
	address := startBus(t)
	etc := t.TempDir()
	if err := os.Mkdir(filepath.Join(etc, "zones"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(etc, "firewalld.conf"),
		[]byte("DefaultZone=public\nFirewallBackend=nftables\nIndividualCalls=no\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-ec", `
		mount -t tmpfs -o mode=755 tmpfs /run
		mkdir /run/lock /run/dbus
		mount -t tmpfs tmpfs /var/log
		mount --bind "$1" /etc/firewalld
		echo ready
		exec firewalld --nofork --nopid`, "sh", etc)
	l.Host.Do(func() { start(t, cmd) })
	bus, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	service := bus.Object("org.fedoraproject.FirewallD1", "/org/fedoraproject/FirewallD1")
	for deadline := time.Now().Add(testnet.Patience); ; time.Sleep(50 * time.Millisecond) {
		var state string
		variant, err := service.GetProperty("org.fedoraproject.FirewallD1.state")
		if err == nil && variant.Store(&state) == nil && state == "RUNNING" {
			return service
		}
		if time.Now().After(deadline) {
			t.Fatalf("firewalld is not running: %v, state %q", err, state)
		}
	}
}
