package network_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
)

// manager returns a manager of the rig's client; edit, which may be nil, changes its options.
func (r *rig) manager(edit func(*network.ManagerOptions)) *network.Manager {
	r.t.Helper()
	o := network.ManagerOptions{Client: r.Client, IfName: network.Numbered("eth")}
	if edit != nil {
		edit(&o)
	}
	m, err := network.NewManager(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func parallel(o *network.ManagerOptions) { o.Parallel = true }

// networks returns n0, n1, … with a plugin p0, p1, … each, and installs the plugins.
func (r *rig) networks(count int) []network.Join {
	r.t.Helper()
	joins := make([]network.Join, count)
	for i := range joins {
		name := fmt.Sprint("p", i)
		r.script(name, nil)
		joins[i] = network.Join{Network: list(r.t, "1.1.0", fmt.Sprint("n", i), name)}
	}
	return joins
}

func sandbox(id string, joins []network.Join) network.SandboxRequest {
	return network.SandboxRequest{ID: id,
		Parameters: network.Parameters{Netns: "/run/netns/absent"}, Networks: joins}
}

// due returns the files about unfinished operations.
func (r *rig) due() []string {
	found, err := filepath.Glob(filepath.Join(r.StateDir, "due", "*"))
	if err != nil {
		r.t.Error(err)
	}
	return found
}

func (r *rig) wantNothing() {
	r.t.Helper()
	r.wantRecorded()
	if d := r.due(); len(d) > 0 {
		r.t.Errorf("due: %q", d)
	}
}

// LIF-09, LIF-10: ADD runs in the order of the networks, DEL in reverse order; Setup returns the
// result of each network.
func TestSetup(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	joins := r.networks(3)
	m := r.manager(nil)
	s, err := m.Setup(t.Context(), sandbox("c1", joins))
	if err != nil {
		t.Fatal(err)
	}
	r.wantCalls("ADD p0, ADD p1, ADD p2")
	var got []string
	for _, a := range s.Attachments {
		got = append(got, fmt.Sprint(a.Attachment, " ", a.Result.DNS.Search))
	}
	if diff := cmp.Diff([]string{"n0/c1/eth0 [p0]", "n1/c1/eth1 [p1]", "n2/c1/eth2 [p2]"},
		got); diff != "" {
		t.Error(diff)
	}
	again, err := r.manager(nil).Sandbox(t.Context(), "c1") // as after a restart
	if diff := cmp.Diff(s, again, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if d := r.due(); len(d) > 0 {
		t.Errorf("due: %q", d)
	}
	if err := m.Check(t.Context(), "c1"); err != nil {
		t.Error(err)
	}
	r.wantCalls("CHECK p0, CHECK p1, CHECK p2")
	for range 2 { // LIF-05
		if err := m.Remove(t.Context(), "c1", nil); err != nil {
			t.Error(err)
		}
	}
	r.wantCalls("DEL p2, DEL p1, DEL p0")
	r.wantNothing()
	if err := m.Check(t.Context(), "c1"); !errors.Is(err, network.ErrNoRecord) ||
		cni.CodeOf(err) != cni.CodeUnknownContainer {
		t.Errorf("CHECK without attachments: %s", describe(err))
	}
}

// Eight networks, and the fifth fails: the first four are detached in reverse order, and Setup
// returns the error of the fifth. Another container, and an earlier attachment of the container,
// stay.
func TestSetupIsUndone(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"before": {}})
	joins := r.networks(8)
	r.script("p4", script{cni.Add: fails(120, "no")})
	m := r.manager(nil)
	before := list(t, "1.1.0", "before", "before")
	for _, id := range []string{"c1", "c2"} {
		if _, err := m.Setup(t.Context(),
			sandbox(id, []network.Join{{Network: before, IfName: "old"}})); err != nil {
			t.Fatal(err)
		}
	}
	r.entries()
	_, err := m.Setup(t.Context(), sandbox("c1", joins))
	if cni.CodeOf(err) != 120 || !strings.Contains(err.Error(), "n4/c1/eth4: p4 ADD: no") {
		t.Errorf("error %s", describe(err))
	}
	r.wantCalls("ADD p0, ADD p1, ADD p2, ADD p3, ADD p4, DEL p4, DEL p3, DEL p2, DEL p1, DEL p0")
	r.wantRecorded("before/c1/old attached", "before/c2/old attached")
	if d := r.due(); len(d) > 0 {
		t.Errorf("due: %q", d)
	}
}

// If the rollback fails, DEL is due, and Setup returns its error too. The next Setup, or Recover,
// runs DEL.
func TestSetupCannotBeUndone(t *testing.T) {
	t.Parallel()
	for _, again := range []string{"setup", "recover"} {
		t.Run(again, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			joins := r.networks(2)
			r.script("p0", script{cni.Del: fails(cni.CodeIOFailure, "disk")})
			r.script("p1", script{cni.Add: fails(120, "no")})
			m := r.manager(nil)
			_, err := m.Setup(t.Context(), sandbox("c1", joins))
			if cni.CodeOf(err) != 120 || !strings.Contains(err.Error(), "p0 DEL: disk") {
				t.Errorf("error %s", describe(err))
			}
			r.wantRecorded("n0/c1/eth0 deleting")
			if _, err := m.Sandbox(t.Context(), "c1"); !errors.Is(err, network.ErrNoRecord) {
				t.Errorf("Sandbox returns it: %v", err)
			}
			r.entries()
			r.script("p0", nil)
			r.script("p1", nil)
			if again == "recover" {
				if err := m.Recover(t.Context(), nil); err != nil {
					t.Error(err)
				}
				r.wantCalls("DEL p0")
				r.wantNothing()
				return
			}
			if _, err := m.Setup(t.Context(), sandbox("c1", joins)); err != nil {
				t.Error(err)
			}
			r.wantCalls("DEL p0, ADD p0, ADD p1")
		})
	}
}

// With Parallel, all ADDs run at once, and the failure of one ends the others.
func TestSetupParallel(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	joins := r.networks(4)
	for i := range joins { // each waits for all plugins
		r.shell(fmt.Sprint("p", i), `[ "$CNI_COMMAND" = ADD ] || exit 0
touch "$dir/in$0" 2>/dev/null || touch "$dir/in${0##*/}"
while [ "$(ls "$dir" | grep -c ^in)" -lt 4 ]; do sleep 0.02; done
echo '{"cniVersion":"1.1.0"}'`)
	}
	m := r.manager(parallel)
	if _, err := m.Setup(t.Context(), sandbox("c1", joins)); err != nil {
		t.Fatal(err)
	}
	r.wantRecorded("n0/c1/eth0 attached", "n1/c1/eth1 attached", "n2/c1/eth2 attached",
		"n3/c1/eth3 attached")
	if err := m.Remove(t.Context(), "c1", nil); err != nil {
		t.Error(err)
	}

	r.script("slow", script{cni.Add: {Stay: 10 * time.Minute}})
	r.script("fails", script{cni.Add: fails(120, "no")})
	joins = []network.Join{{Network: list(t, "1.1.0", "slow", "slow")}, joins[1],
		{Network: list(t, "1.1.0", "fails", "fails")}}
	r.script("p1", nil)
	_, err := m.Setup(t.Context(), sandbox("c1", joins))
	if err == nil || !strings.Contains(err.Error(), "fails/c1/eth2: fails ADD: no") {
		t.Errorf("error %s", describe(err))
	}
	r.wantNothing()
}

// Setup runs all checks for all networks before the first plugin starts.
func TestSetupChecksFirst(t *testing.T) {
	t.Parallel()
	missing := network.Join{Network: list(t, "1.1.0", "missing", "no-such-plugin")}
	for _, tt := range []struct {
		name  string
		joins func(two []network.Join) []network.Join
		code  cni.Code
		text  string
	}{
		{"no networks and an invalid container ID", nil, cni.CodeInvalidEnvironment,
			"CNI_CONTAINERID"},
		{"a missing binary", func(j []network.Join) []network.Join { return append(j, missing) },
			cni.CodeInvalidConfig, "no-such-plugin"},
		{"a duplicate interface name",
			func(j []network.Join) []network.Join { j[1].IfName = "eth0"; return j },
			cni.CodeInvalidEnvironment, "interface eth0 is already used by network n0"},
		{"an invalid interface name",
			func(j []network.Join) []network.Join { j[1].IfName = "a/b"; return j },
			cni.CodeInvalidEnvironment, "a/b"},
		{"a network that is not in the directory",
			func(j []network.Join) []network.Join { return append(j, network.Join{Name: "blue"}) },
			cni.CodeInvalidConfig, `network "blue"`},
		{"arguments that CNI_ARGS cannot express", func(j []network.Join) []network.Join {
			j[1].Args = cni.Args{{Key: "a", Value: "b;c"}}
			return j
		}, cni.CodeInvalidEnvironment, "CNI_ARGS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			s := sandbox("../c1", []network.Join{})
			if tt.joins != nil {
				s = sandbox("c1", tt.joins(r.networks(2)))
			}
			_, err := r.manager(nil).Setup(t.Context(), s)
			if err == nil || cni.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %s", describe(err))
			}
			r.wantCalls("")
			r.wantNothing()
		})
	}
}

// LIF-03: Setup of an existing attachment fails before it attaches any network; with Replace it
// first runs DEL.
func TestSetupExists(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	joins := r.networks(2)
	m := r.manager(nil)
	if _, err := m.Setup(t.Context(),
		sandbox("c1", []network.Join{{Network: joins[1].Network, IfName: "eth1"}})); err != nil {
		t.Fatal(err)
	}
	r.entries()
	s := sandbox("c1", joins)
	if _, err := m.Setup(t.Context(), s); !errors.Is(err, network.ErrExists) {
		t.Errorf("error %s", describe(err))
	}
	r.wantCalls("")
	s.Replace = true
	if _, err := m.Setup(t.Context(), s); err != nil {
		t.Error(err)
	}
	r.wantCalls("DEL p1, ADD p0, ADD p1")
}

// RT-DEL-03: Remove needs no configuration, continues past errors, and can be repeated.
func TestRemove(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	joins := r.networks(3)
	m := r.manager(nil)
	if _, err := m.Setup(t.Context(), sandbox("c1", joins)); err != nil {
		t.Fatal(err)
	}
	// Attach adds a network to the running container.
	if _, err := m.Attach(t.Context(), "c1", request("c1").Parameters,
		network.Join{Network: joins[0].Network, IfName: "eth3"}); err != nil {
		t.Fatal(err)
	}
	r.entries()
	r.script("p1", script{cni.Del: fails(cni.CodeTryAgainLater, "busy")})
	err := m.Remove(t.Context(), "c1", nil)
	if cni.CodeOf(err) != cni.CodeTryAgainLater ||
		!strings.Contains(err.Error(), "n1/c1/eth1: p1 DEL: busy") {
		t.Errorf("error %s", describe(err))
	}
	r.wantCalls("DEL p0, DEL p2, DEL p1, DEL p0")
	r.wantRecorded("n1/c1/eth1 deleting")
	r.script("p1", nil)
	if err := m.Remove(t.Context(), "c1", nil); err != nil {
		t.Error(err)
	}
	r.wantCalls("DEL p1")
	r.wantNothing()
	if err := m.Detach(t.Context(), cni.Attachment{Network: "n0", Container: "c1",
		IfName: "eth0"}); !errors.Is(err, network.ErrNoRecord) {
		t.Errorf("detached although there was no attachment: %v", err)
	}
}

// RT-DEL-06: attachments of another library get DEL with the parameters of Remove; recorded ones
// get it with the recorded parameters.
func TestRemoveUnrecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	joins := r.networks(2)
	m := r.manager(nil)
	if _, err := m.Setup(t.Context(), sandbox("c1", joins[:1])); err != nil {
		t.Fatal(err)
	}
	r.entries()
	now := sandbox("", joins)
	now.Args = cni.Args{{Key: "K", Value: "now"}}
	if err := m.Remove(t.Context(), "c1", &now); err != nil {
		t.Error(err)
	}
	var got []string
	for _, e := range r.entries() {
		got = append(got, e.String()+" "+e.Env.IfName+" "+e.Env.Args)
	}
	if diff := cmp.Diff([]string{"DEL p1 eth1 K=now", "DEL p0 eth0 "}, got); diff != "" {
		t.Error(diff)
	}
	r.wantNothing()
}

// an unreadable record does not prevent Remove: it detaches the attachment with the current
// configuration. Without a configuration it returns an error, except for a record that does not
// name its container.
func TestRemoveUnreadable(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	joins := r.networks(2)
	m := r.manager(nil)
	if _, err := m.Setup(t.Context(), sandbox("c1", joins)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Setup(t.Context(), sandbox("other", joins[:1])); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(recordPath(r.Client,
		cni.Attachment{Network: "n0", Container: "other", IfName: "eth0"}), 0); err != nil {
		t.Fatal(err)
	}
	editRecord(t, r.Client, cni.Attachment{Network: "n1", Container: "c1", IfName: "eth1"},
		`"attached"`, `"whatever"`)
	r.entries()
	err := m.Remove(t.Context(), "c1", nil)
	if !errors.Is(err, network.ErrUnreadable) || !strings.Contains(err.Error(), "n1/c1/eth1") {
		t.Errorf("error %s", describe(err))
	}
	r.wantCalls("DEL p0")
}

// An attachment that was created later under the key of an interrupted Setup is not due.
func TestDueNamesOneAdd(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	joins := r.networks(2)
	m := r.manager(nil)
	if _, err := m.Setup(t.Context(), sandbox("c1", joins)); err != nil {
		t.Fatal(err)
	}
	r.putDue("c1", network.Adding)
	r.wantRecorded("n0/c1/eth0 adding", "n1/c1/eth1 adding")
	for _, j := range joins { // as another runtime does, one by one
		i := strings.TrimPrefix(j.Network.Name, "n")
		if _, err := r.Add(t.Context(), j.Network, network.Request{Container: "c1", IfName: "eth" +
			i, Parameters: request("c1").Parameters}); err != nil {
			t.Fatal(err)
		}
	}
	r.wantCalls("ADD p0, ADD p1, DEL p0, ADD p0, DEL p1, ADD p1")
	r.wantRecorded("n0/c1/eth0 attached", "n1/c1/eth1 attached")
	if err := m.Recover(t.Context(), nil); err != nil {
		t.Error(err)
	}
	r.wantCalls("")
	r.wantRecorded("n0/c1/eth0 attached", "n1/c1/eth1 attached")
	if d := r.due(); len(d) > 0 {
		t.Errorf("due: %q", d)
	}
}

// putDue records that DEL is due for all attachments of a container.
func (r *rig) putDue(container string, s network.State) {
	r.t.Helper()
	records, err := r.List()
	if err != nil {
		r.t.Fatal(err)
	}
	var of []*network.Record
	for i := range records {
		if records[i].Attachment.Container == container {
			of = append(of, &records[i])
		}
	}
	if err := r.PutDue(container, s, of); err != nil {
		r.t.Fatal(err)
	}
}

// The next operation runs the DEL that is due: Recover, GC, a Setup of other networks, or Remove.
func TestDueIsDone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		next func(*network.Manager, []network.Join) error
		want string
	}{
		{"Recover", func(m *network.Manager, _ []network.Join) error {
			return m.Recover(context.Background(), nil)
		},
			"DEL p1, DEL p0"},
		{"Remove", func(m *network.Manager, _ []network.Join) error {
			return m.Remove(context.Background(), "c1", nil)
		},
			"DEL p1, DEL p0"},
		{"GC", func(m *network.Manager, _ []network.Join) error {
			return m.GC(context.Background(), network.KeepSandboxes{Recorded: true})
		}, "DEL p0, GC p0, DEL p1, GC p1"},
		{"a Setup of another network", func(m *network.Manager, joins []network.Join) error {
			_, err := m.Setup(context.Background(), sandbox("c1", joins[2:]))
			return errors.Join(err, m.Remove(context.Background(), "c1", nil))
		}, "DEL p1, DEL p0, ADD p2, DEL p2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			joins := r.networks(3)
			m := r.manager(nil)
			if _, err := m.Setup(t.Context(), sandbox("c1", joins[:2])); err != nil {
				t.Fatal(err)
			}
			r.entries()
			r.putDue("c1", network.Adding)
			if _, err := m.Sandbox(t.Context(), "c1"); !errors.Is(err, network.ErrNoRecord) {
				t.Errorf("Sandbox returns it: %v", err)
			}
			if err := tt.next(m, joins); err != nil {
				t.Error(err)
			}
			r.wantCalls(tt.want)
			if err := m.Recover(t.Context(), nil); err != nil {
				t.Error(err)
			}
			r.wantCalls("")
			r.wantNothing()
		})
	}
}

// A Setup in progress is not taken for an interrupted one.
func TestDueOfAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	joins := r.networks(2)
	r.shell("p1", `[ "$CNI_COMMAND" = ADD ] || exit 0
touch "$dir/started"; while [ ! -e "$dir/go" ]; do sleep 0.02; done; echo '{"cniVersion":"1.1.0"}'`)
	m := r.manager(nil)
	done := make(chan error, 1)
	go func() {
		_, err := m.Setup(t.Context(), sandbox("c1", joins))
		done <- err
	}()
	waitForPath(t, filepath.Join(r.plugins, "started"))
	r.wantRecorded("n0/c1/eth0 adding", "n1/c1/eth1 adding")
	recovered := make(chan error, 1)
	go func() { recovered <- m.Recover(t.Context(), nil) }()
	time.Sleep(50 * time.Millisecond) // time for Recover to interfere
	if err := os.WriteFile(filepath.Join(r.plugins, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-done, <-recovered); err != nil {
		t.Error(err)
	}
	r.wantCalls("ADD p0")
	r.wantRecorded("n0/c1/eth0 attached", "n1/c1/eth1 attached")
}

// RT-GC-01: GC keeps the attachments of containers in use and of other runtimes. It deletes all
// others, also in a network that is no longer in the directory.
func TestManagerGC(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	joins := r.networks(2)
	r.Runtime = "mine"
	m := r.manager(nil)
	for _, id := range []string{"c1", "c2"} {
		if _, err := m.Setup(t.Context(), sandbox(id, joins)); err != nil {
			t.Fatal(err)
		}
	}
	other := *r.Client
	other.Runtime = "other"
	if _, err := other.Add(t.Context(), joins[0].Network, request("c3")); err != nil {
		t.Fatal(err)
	}
	r.entries()
	if err := m.GC(t.Context(), network.KeepSandboxes{}); cni.CodeOf(err) != cni.CodeInvalidConfig {
		t.Errorf("GC without a list: %s", describe(err))
	}
	if err := m.GC(t.Context(), network.KeepSandboxes{IDs: []string{"c2"}}); err != nil {
		t.Error(err)
	}
	var got []string
	for _, e := range r.entries() {
		valid := ""
		if e.Env.Command == cni.GC {
			attachments, err := cni.DecodeValidAttachments(e.Stdin)
			valid = fmt.Sprint(attachments, err)
		}
		got = append(got, strings.TrimSpace(e.String()+" "+e.Env.ContainerID+valid))
	}
	want := []string{"DEL p0 c1", "GC p0 [{c2 eth0} {c3 eth0}] <nil>", "DEL p1 c1",
		"GC p1 [{c2 eth1}] <nil>"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Arguments for one network go to the first network that declares them; a join has its own
// arguments; all other arguments go to all networks.
func TestSetupParameters(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"p": {}})
	capable := func(name, capabilities string) network.Join {
		return network.Join{Network: list(t, "1.1.0", name,
			`{"type":"p","capabilities":`+capabilities+`}`)}
	}
	s := sandbox("c1", []network.Join{
		capable("a", `{"dns":true}`), capable("b", `{"portMappings":true,"dns":true}`),
		capable("c", `{"portMappings":true,"mac":true}`),
	})
	s.Args = cni.Args{{Key: "IgnoreUnknown", Value: "1"}, {Key: "K", Value: "all"}}
	s.Capabilities = map[string]json.RawMessage{"portMappings": []byte(`[1]`), "dns": []byte(`{}`)}
	s.Networks[2].Args = cni.Args{{Key: "K", Value: "own"}}
	s.Networks[2].Capabilities = map[string]json.RawMessage{"mac": []byte(`"m"`)}
	if _, err := r.manager(nil).Setup(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range r.entries() {
		var stdin struct{ RuntimeConfig json.RawMessage }
		if err := json.Unmarshal(e.Stdin, &stdin); err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Env.IfName+" "+e.Env.Args+" "+string(stdin.RuntimeConfig))
	}
	want := []string{
		`eth0 IgnoreUnknown=1;K=all {"dns":{}}`,
		`eth1 IgnoreUnknown=1;K=all {"dns":{},"portMappings":[1]}`,
		`eth2 IgnoreUnknown=1;K=own {"mac":"m"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// addresses of the container, even if an interface of the host has the same name.
func TestSandboxAddresses(t *testing.T) {
	t.Parallel()
	decode := func(text string) *cni.Result {
		r, err := cni.DecodeResult([]byte(text), cni.V110)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	s := network.Sandbox{ID: "c1", Attachments: []network.AttachmentResult{
		{Attachment: cni.Attachment{Network: network.LoopbackNetwork},
			Result: decode(`{"cniVersion":"1.1.0","interfaces":[{"name":"lo","sandbox":"/n"}],"ips":[{"address":"127.0.0.1/8","interface":0}]}`)},
		{Result: decode(`{"cniVersion":"1.1.0","interfaces":[{"name":"eth0"},{"name":"eth0","sandbox":"/n"}],
			"ips":[{"address":"10.0.0.1/24","interface":0},{"address":"10.0.0.2/24","interface":1},{"address":"10.0.0.3/24"},{"address":"fd00::2/64","interface":1}],
			"dns":{"nameservers":["1.1.1.1","2.2.2.2"],"search":["a"],"options":["ndots:2"]}}`)},
		{Result: decode(`{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.2/24"}],
			"dns":{"nameservers":["2.2.2.2","3.3.3.3"],"domain":"d","search":["b","a"],"options":["ndots:5","edns0"]}}`)},
		{Attachment: cni.Attachment{Network: "old"}},
	}}
	if got, want := fmt.Sprint(s.PodIPs()), "[10.0.0.2 fd00::2]"; got != want {
		t.Errorf("pod: %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(s.Primary().Addresses()),
		"[10.0.0.2/24 10.0.0.3/24 fd00::2/64]"; got != want {
		t.Errorf("primary: %s, want %s", got, want)
	}
	want := cni.DNS{
		Nameservers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3"}, Domain: "d",
		Search: []string{"a", "b"}, Options: []string{"ndots:2", "edns0"},
	}
	if diff := cmp.Diff(want, s.DNS()); diff != "" {
		t.Error(diff)
	}
	if none := (&network.Sandbox{}); none.Primary() != nil || none.PodIPs() != nil ||
		!none.DNS().IsZero() {
		t.Error("an empty sandbox has attributes")
	}
}

// NewManager refuses contradictory options.
func TestManagerOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []network.ManagerOptions{{Min: -1}, {Max: -1}, {Min: 2, Max: 1}, {Min: 1}} {
		if _, err := network.NewManager(o); cni.CodeOf(err) != cni.CodeInvalidConfig {
			t.Errorf("%+v: %s", o, describe(err))
		}
	}
}

// With a full or read-only disk, Setup makes no change that it could not undo.
func TestSetupDiskFull(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	joins := r.networks(2)
	if err := os.MkdirAll(r.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	// A file replaces the directory.
	if err := os.WriteFile(filepath.Join(r.StateDir, "due"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := r.manager(nil)
	if _, err := m.Setup(t.Context(), sandbox("c1", joins)); cni.CodeOf(err) != cni.CodeIOFailure {
		t.Errorf("error %s", describe(err))
	}
	r.wantCalls("")
	r.wantRecorded()
	// Remove works without the file.
	for i, j := range joins {
		if _, err := m.Attach(t.Context(), "c1", request("c1").Parameters,
			network.Join{Network: j.Network, IfName: fmt.Sprint("eth", i)}); err != nil {
			t.Fatal(err)
		}
	}
	r.entries()
	if err := m.Remove(t.Context(), "c1", nil); cni.CodeOf(err) != cni.CodeIOFailure {
		t.Errorf("error %s", describe(err))
	}
	r.wantCalls("DEL p1, DEL p0")
}

// An observer sees a Setup as a whole, its parts, and its rollback.
func TestSetupIsObserved(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	joins := r.networks(2)
	o := &story{with: []network.EventKind{network.Setup, network.Removal, network.Operation,
		network.Rollback}}
	r.Observer = o
	m := r.manager(nil)
	if _, err := m.Setup(t.Context(), sandbox("c1", joins)); err != nil {
		t.Fatal(err)
	}
	if err := m.Remove(t.Context(), "c1", nil); err != nil {
		t.Fatal(err)
	}
	r.script("p1", script{cni.Add: fails(120, "no")})
	if _, err := m.Setup(t.Context(), sandbox("c1", joins)); err == nil {
		t.Fatal("success")
	}
	want := `
setup /c1/
  operation ADD n0/c1/eth0
  ended with 1 addresses
  operation ADD n1/c1/eth1
  ended with 1 addresses
ended
removal /c1/
  operation DEL n1/c1/eth1
  ended
  operation DEL n0/c1/eth0
  ended
ended
setup /c1/
  operation ADD n0/c1/eth0
  ended with 1 addresses
  operation ADD n1/c1/eth1
    rollback DEL n1/c1/eth1
    ended
  ended with 120
  rollback DEL n0/c1/eth0
  ended
ended with 120
`
	if diff := cmp.Diff(want, "\n"+o.told()); diff != "" {
		t.Error(diff)
	}
}
