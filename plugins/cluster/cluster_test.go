package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/cluster"
)

// node is a node with a state directory, and an agent if the test serves one.
type node struct {
	testing.TB
	dir     string
	agent   *agent
	socket  string
	args    string // CNI_ARGS
	conf    string // further members of the configuration
	version string // of the configuration; 1.1.0 if empty
	plugin  plugin.Definition
}

func newNode(t testing.TB) *node {
	dir := t.TempDir()
	return &node{TB: t, dir: dir, agent: newAgent(dir), socket: filepath.Join(t.TempDir(), "s"),
		plugin: cluster.Plugin}
}

func (n *node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// prepare gives the node a block of a pool, and changes the state.
func (n *node) prepare(pool string, change func(*local.State)) {
	n.Helper()
	p, err := n.agent.store.Open(context.Background(), pool, false)
	n.must(err)
	n.must(n.agent.confirm(p))
	if change != nil {
		change(&p.State)
	}
	n.must(errors.Join(p.Save(), p.Close()))
}

// serve calls the plugin. ipam holds the members of the ipam section.
func (n *node) serve(verb cni.Command, container, ipam string) ([]byte, error) {
	n.Helper()
	version := n.version
	if version == "" {
		version = "1.1.0"
	}
	conf := fmt.Sprintf(`{"cniVersion":%q,"name":"net","type":"bridge","ipam":{"type":"cluster",`+
		`"dir":%q,"socket":%q,%s}%s}`, version, n.dir, n.socket, ipam, n.conf)
	if !json.Valid([]byte(conf)) {
		n.Fatalf("not JSON: %s", conf)
	}
	env := cni.Env{Command: verb, ContainerID: container, IfName: "eth0", Netns: "/absent",
		Args: n.args}
	return n.plugin.Serve(context.Background(), env, []byte(conf), nil)
}

// outcome calls the plugin and returns the addresses with gateways, or code and message.
func (n *node) outcome(verb cni.Command, container, ipam string) string {
	n.Helper()
	out, err := n.serve(verb, container, ipam)
	if err != nil {
		return fmt.Sprintf("%d %s", cni.CodeOf(err), cni.AsError(err).Msg)
	}
	if verb != cni.Add {
		return string(out)
	}
	r, err := cni.DecodeResultStrict(out, cni.V110)
	n.must(err)
	var ips []string
	for _, ip := range r.IPs {
		ips = append(ips, ip.Address.String()+" via "+ip.Gateway.String())
	}
	return strings.Join(ips, ", ")
}

// want requires a part of an outcome.
func (n *node) want(verb cni.Command, container, ipam, want string) {
	n.Helper()
	got := n.outcome(verb, container, ipam)
	if want == "" && got != "" || !strings.Contains(got, want) {
		n.Errorf("%s of %s: got %q, want %q", verb, container, got, want)
	}
}

// details returns the details of an error.
func (n *node) details(verb cni.Command, container, ipam string) string {
	n.Helper()
	_, err := n.serve(verb, container, ipam)
	if err == nil {
		n.Fatalf("%s succeeded", verb)
	}
	return cni.AsError(err).Details
}

// leases returns "POOL ADDRESS CONTAINER" for all reservations.
func (n *node) leases() (all []string) {
	n.Helper()
	names, err := n.agent.store.Pools()
	n.must(err)
	for _, name := range names {
		p, err := n.agent.store.Open(context.Background(), name, false)
		n.must(err)
		leases, err := p.Leases(context.Background())
		n.must(errors.Join(err, p.Close()))
		for _, l := range leases {
			all = append(all, fmt.Sprintf("%s %s %s", name, l.Addr, l.Owner.Container))
		}
	}
	return all
}

func (n *node) wantLeases(want ...string) {
	n.Helper()
	if diff := cmp.Diff(want, n.leases()); diff != "" {
		n.Errorf("leases (-want +got):\n%s", diff)
	}
}

func (n *node) wantAsked(want string) {
	n.Helper()
	if got := n.agent.asked(); got != want {
		n.Errorf("requests to the agent: %q, want %q", got, want)
	}
}

func TestResult(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.prepare("pods", nil)
	n.prepare("pods6", nil)
	n.prepare("prefixes", nil)
	out, err := n.serve(cni.Add, "c1",
		`"pools":["pods","pods6","prefixes"],"routes":[{"dst":"0.0.0.0/0"}]`)
	n.must(err)
	const want = `{"cniVersion":"1.1.0","ips":[{"address":"10.64.0.2/26","gateway":"10.64.0.1"},` +
		`{"address":"fd00:64::2/122","gateway":"fd00:64::1"},` +
		`{"address":"fd00:66::2/64","gateway":"fd00:66::1"}],"routes":[{"dst":"0.0.0.0/0"}]}`
	if string(out) != want {
		t.Errorf("got %s, want %s", out, want)
	}
	n.want(cni.Check, "c1", `"pools":["pods","pods6"]`, "")
	n.want(cni.Check, "c2", `"pool":"pods"`,
		"999 cluster: Failed to find address added by container c2 in pool pods")
	n.want(cni.Add, "c1", `"pool":"pods"`, "7 10.64.0.2 has been allocated to c1")
	n.want(cni.Status, "", `"pools":["pods","pods6"]`, "")
	n.want(cni.Del, "c1", `"pool":"other"`, "") // all pools of the node
	n.wantLeases()
	n.wantAsked("")
}

func TestRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.prepare("pods", nil)
	for ipam, want := range map[string]string{
		`"pool":""`:                         "7 ipam: no pool",
		`"pools":[]`:                        "7 ipam: no pool",
		`"pool":"pods","pools":["pods6"]`:   "7 ipam: pool and pools exclude each other",
		`"pools":["pods","pods"]`:           `7 ipam: pools contains "pods" twice`,
		`"pool":"../pods"`:                  "7 ipam: pool: name",
		`"pool":7`:                          "6 network configuration: ipam.pool: expected a string",
		`"pool":"pods","sticky":true`:       "4 CNI_ARGS: a sticky address needs K8S_POD_NAMESPACE",
		`"pool":"pods","dir":"/proc/nodir"`: "5 dir: ",
	} {
		n.want(cni.Add, "c1", ipam, want)
	}
	n.args = "IP=10.64.0.300"
	n.want(cni.Add, "c1", `"pool":"pods"`, "7 invalid IP address 10.64.0.300")
	n.args = "COLOUR=red"
	n.want(cni.Add, "c1", `"pool":"pods"`, "4 ARGS: unknown args")
	for _, args := range []string{"K8S_POD_NAMESPACE=shop\r\nc2;K8S_POD_NAME=web",
		"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web\n"} {
		n.args = args
		n.want(cni.Add, "c1", `"pool":"pods"`, "4 CNI_ARGS: the pod's name or namespace, ")
	}
	n.wantLeases()
}

// If the second pool has no address, the address of the first is released, also a shared one.
func TestDualStackUndo(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.prepare("pods", nil)
	n.prepare("pods6", func(s *local.State) { s.Draining = true })
	n.want(cni.Add, "c1", `"pools":["pods","pods6"]`, "11 pool pods6: the node is draining")
	n.wantLeases()
	n.args = "IP=10.79.255.200" // in no block of this node
	n.agent.serve(t, n.socket)
	n.want(cni.Add, "c1", `"pools":["pods","pods6"]`, "11 pool pods6: the node is draining")
	n.wantLeases()
	n.wantAsked("acquire released")
	n.args = ""
	n.prepare("pods6", func(s *local.State) { s.Draining = false })
	n.want(cni.Add, "c1", `"pools":["pods","pods6"]`, "10.64.0.3/26 via 10.64.0.1, fd00:64::2/122")
}

// TestTwoPoolsOfFamily: results before version 0.3.0 have one address per family, so ADD refuses two
// pools of a family.
func TestTwoPoolsOfFamily(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.prepare("pods", nil)
	n.prepare("more", nil)
	n.version = "0.2.0"
	n.want(cni.Add, "c1", `"pools":["pods","more"]`, "7 CNI version 0.2.0 does not support")
	n.wantLeases()
	n.version = "1.1.0"
	n.want(cni.Add, "c1", `"pools":["pods","more"]`, "10.64.0.3/26 via 10.64.0.1, 10.96.0.3/26 via 10.96.0.1")
}

// Full blocks, a restart and an unknown pool need the agent; ADD continues with its reply.
func TestAgent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.agent.serve(t, n.socket)
	n.want(cni.Add, "c0", `"pool":"pods"`, "10.64.0.2/26 via 10.64.0.1") // an unknown pool
	n.wantAsked("grow")
	for i := 1; i < 61; i++ {
		n.want(cni.Add, fmt.Sprint("c", i), `"pool":"pods"`, fmt.Sprintf("10.64.0.%d/26", i+2))
	}
	n.wantAsked("grow")
	n.want(cni.Status, "", `"pool":"pods"`, "") // full, but the agent can claim a block
	n.wantAsked("grow report")
	n.want(cni.Add, "c61", `"pool":"pods"`, "10.64.0.66/26 via 10.64.0.65")
	n.wantAsked("grow report grow")
	if have := n.agent.requests[2].Have; len(have) != 1 || have[0] != "nonce0" {
		t.Errorf("have %q", have)
	}
	n.prepare("pods", func(s *local.State) { s.Boot = "another" })
	n.want(cni.Add, "c62", `"pool":"pods"`, "10.64.0.67/26")
	n.wantAsked("grow report grow grow")
	n.want(cni.Add, "d", `"pool":"absent"`, "7 pool absent does not exist")
	n.agent.refuse = cni.Errorf(cni.CodeTryAgainLater, "pool pods is exhausted")
	n.prepare("pods", func(s *local.State) { s.Blocks = nil })
	n.want(cni.Add, "d", `"pool":"pods"`, "11 pool pods is exhausted")
	if got := n.details(cni.Add, "d", `"pool":"pods"`); !strings.Contains(got,
		"pool pods, no contact with the store so far, hold is off") {
		t.Errorf("details %q", got)
	}
}

// Each state of the node has an error that explains itself, in ADD and in STATUS. No agent runs.
func TestErrors(t *testing.T) {
	t.Parallel()
	const unreachable = "no agent is listening"
	now := func(d time.Duration) *local.Deadline {
		up, wall := local.New(local.Options{}).Clock()()
		deadline := local.NewDeadline(up, wall, d)
		return &deadline
	}
	for _, row := range []struct {
		name        string
		change      func(*local.State)
		add, status string
		details     []string
	}{
		{"full", func(s *local.State) { s.Blocks[0].Phase = local.Returning },
			"11 pool pods: no free address in the blocks of this node: 0 of 0 are in use; " +
				"the agent cannot help: ",
			"50 pool pods: no free address in the blocks of this node: 0 of 0 are in use; " +
				"the agent cannot help: ",
			[]string{"last contact with the store 5m ago", "hold is off", unreachable,
				"start the agent of this node"}},
		{"rebooted", func(s *local.State) { s.Boot = "another" },
			"11 pool pods: the blocks are not confirmed since the node started; the agent cannot",
			"50 pool pods: the blocks are not confirmed since the node started; the agent cannot",
			[]string{"last contact with the store 5m ago", unreachable}},
		{"draining", func(s *local.State) { s.Draining = true },
			"11 pool pods: the node is draining", "50 pool pods: the node is draining",
			[]string{"an operator drains this node"}},
		{"fenced", func(s *local.State) { s.Blocks[0].Phase = local.Lost },
			"11 pool pods: the node was fenced and has lost its blocks",
			"50 pool pods: the node was fenced and has lost its blocks",
			[]string{"tenon-cluster node rejoin"}},
		{"hold has ended", func(s *local.State) { s.Hold = now(-time.Second) },
			"11 pool pods: the node may not use its blocks: no contact with the store for too long",
			"51 pool pods: the node may not use its blocks: no contact with the store for too long",
			[]string{"hold has ended", "restore the connection"}},
		{"full before the end of hold", func(s *local.State) {
			s.Hold, s.Blocks = now(65*time.Minute), nil
		}, "11 pool pods: no free address", "50 pool pods: no free address",
			[]string{"hold ends in 6", unreachable}},
		{"quota", func(s *local.State) { s.Pool.Quota = map[string]uint64{"*": 3} },
			`11 pool pods: the node's part of the namespace's quota is used up: namespace "" uses 0`,
			"", []string{"start the agent"}},
		{"namespace", func(s *local.State) { s.Pool.Namespaces = []string{"shop"} },
			`7 pool pods: the pool is not open to the namespace: "" is none of ["shop"]`, "", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.prepare("pods", row.change)
			n.must(n.agent.store.SetContact())
			contact := time.Now().Add(-5*time.Minute - time.Second)
			n.must(os.Chtimes(filepath.Join(n.dir, "contact"), contact, contact))
			n.want(cni.Add, "c1", `"pool":"pods"`, row.add)
			n.want(cni.Status, "", `"pool":"pods"`, row.status)
			_, err := n.serve(cni.Add, "c1", `"pool":"pods"`)
			for _, want := range row.details {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("ADD: %v; want %q", err, want)
				}
			}
			n.want(cni.Del, "c1", `"pool":"pods"`, "")
			n.wantLeases()
		})
	}
}

// STATUS of a pool without a free address depends on the agent.
func TestStatus(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.prepare("pods", func(s *local.State) { s.Blocks = nil })
	for i, row := range []struct {
		name  string
		reply agentcall.Reply
		want  string
	}{
		{"the agent has contact", agentcall.Reply{Status: &agentcall.Status{Contact: time.Now(),
			Pools: []agentcall.PoolStatus{{Pool: "pods"}, {Pool: "other", Exhausted: "full"}}}}, ""},
		{"the agent has had no contact", agentcall.Reply{Status: new(agentcall.Status)},
			"50 pool pods: no free address in the blocks of this node: 0 of 0 are in use; " +
				"the agent has no contact with the store"},
		{"no further block", agentcall.Reply{Status: &agentcall.Status{Contact: time.Now(),
			Pools: []agentcall.PoolStatus{{Pool: "pods", Exhausted: "the pool has no free block"}}}},
			"are in use: the pool has no free block"},
		{"the agent fails", *agentcall.Fail(errors.New("starting")), "the agent cannot help: starting"},
	} {
		n := &node{TB: n, dir: n.dir, socket: fmt.Sprint(n.socket, i),
			plugin: n.plugin}
		serveReply(t, n.socket, row.reply)
		t.Log(row.name)
		n.want(cni.Status, "", `"pool":"pods"`, row.want)
	}
	before := tree(t, n.dir)
	n.want(cni.Status, "", `"pool":"unknown"`, "50 pool unknown: this node does not know the pool; "+
		"the agent cannot help: ")
	if after := tree(t, n.dir); after != before {
		t.Errorf("STATUS changed\n%sto\n%s", before, after)
	}
	file := filepath.Join(n.dir, "addresses", "blocked")
	n.must(os.WriteFile(file, nil, 0o600))
	n.want(cni.Status, "", `"pool":"blocked"`, "50 dir: ")
}

func serveReply(t testing.TB, socket string, r agentcall.Reply) {
	t.Helper()
	a := newAgent(t.TempDir())
	a.fixed = &r
	a.serve(t, socket)
}

// tree lists a directory.
func tree(t testing.TB, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			fmt.Fprintln(&all, path, d.Type())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// A pod with a sticky address gets the one of its name, through the agent. DEL notes it and calls
// the agent, or leaves the note if no agent runs.
func TestSticky(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"
	n.want(cni.Add, "c1", `"pool":"pods","sticky":true`,
		"11 pool pods: the agent must provide a shared address: ")
	n.agent.serve(t, n.socket)
	n.want(cni.Add, "c1", `"pool":"pods","sticky":true`, "10.79.255.194/26 via 10.79.255.193")
	if q := n.agent.requests[0]; q.Name != "web-0" || q.Namespace != "shop" || q.Container != "c1" ||
		q.Network != "net" || q.IfName != "eth0" || q.Pool != "pods" || q.Deadline.IsZero() {
		t.Errorf("%+v", q)
	}
	n.want(cni.Check, "c1", `"pool":"pods","sticky":true`, "")
	n.want(cni.Status, "", `"pool":"pods","sticky":true`, "")
	n.wantLeases("pods 10.79.255.194 c1")
	socket := n.socket
	n.socket += "-absent"
	n.want(cni.Status, "", `"pool":"pods","sticky":true`, "50 pool pods: sticky: ")
	n.want(cni.Del, "c1", `"pool":"pods","sticky":true`, "")
	n.wantLeases()
	notes, err := n.agent.store.Notes()
	if err != nil || len(notes) != 1 || notes[0].Container != "c1" {
		t.Errorf("%+v %v", notes, err)
	}
	n.socket = socket
	n.want(cni.Add, "c2", `"pool":"pods","sticky":true`, "10.79.255.194/26")
	n.want(cni.Del, "c2", `"pool":"pods"`, "")
	n.wantAsked("acquire report acquire released")
	if notes, err := n.agent.store.Notes(); err != nil || len(notes) > 0 {
		t.Errorf("%+v %v", notes, err)
	}
}

// Requested addresses come from the block, or from the agent, one of each pool.
func TestRequestedAddresses(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.prepare("pods", nil)
	n.prepare("pods6", nil)
	n.agent.serve(t, n.socket)
	n.args = "IP=10.64.0.20"
	n.conf = `,"args":{"cni":{"ips":["fd00:64::9/64"]}}`
	n.want(cni.Add, "c1", `"pools":["pods","pods6"]`,
		"10.64.0.20/26 via 10.64.0.1, fd00:64::9/122 via fd00:64::1")
	n.wantAsked("")
	n.conf = ""
	n.want(cni.Add, "c2", `"pool":"pods"`,
		"11 requested IP address 10.64.0.20 is not available in range set")
	n.args = "IP=10.64.0.63"
	n.want(cni.Add, "c2", `"pool":"pods"`, "7 the address cannot be allocated: 10.64.0.63 is the")
	n.args = "IP=192.0.2.1"
	n.want(cni.Add, "c2", `"pool":"pods"`, "7 failed to allocate all requested IPs: 192.0.2.1")
	n.args = "IP=10.79.0.9"
	n.want(cni.Add, "c2", `"pool":"pods"`, "10.79.0.9/26 via 10.79.0.1")
	n.conf = `,"runtimeConfig":{"ips":["10.64.0.30"]}`
	n.want(cni.Add, "c3", `"pool":"pods"`, "11 requested IP address 10.79.0.9 is not available "+
		"in range set 10.79.0.0-10.79.0.63")
	n.wantLeases("pods 10.64.0.20 c1", "pods 10.79.0.9 c2", "pods6 fd00:64::9 c1")

	n.prepare("prefixes", nil)
	n.conf = ""
	for i, a := range []string{"fd00:66:0:4000::", "fd00:66:0:4001::2"} { // the interface has ::2
		n.args = "IP=" + a
		n.want(cni.Add, fmt.Sprint("p", i), `"pool":"prefixes"`,
			fmt.Sprintf("fd00:66:0:400%d::2/64 via fd00:66:0:400%d::1", i, i))
	}
	n.args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;IP=10.79.0.10"
	n.want(cni.Add, "s", `"pool":"pods","sticky":true`, "10.79.0.10/26 via 10.79.0.1")
}

func TestQuota(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.prepare("pods", func(s *local.State) { s.Pool.Quota = map[string]uint64{"shop": 100} })
	n.agent.serve(t, n.socket)
	n.args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"
	for i := range 9 {
		n.want(cni.Add, fmt.Sprint("c", i), `"pool":"pods"`, fmt.Sprintf("10.64.0.%d/26", i+2))
	}
	n.wantAsked("draw draw")
}

// GC frees the addresses of one network, also shared ones, with no more than its name.
func TestGC(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.prepare("pods", nil)
	for _, c := range []string{"c1", "c2"} {
		n.want(cni.Add, c, `"pool":"pods"`, "10.64.0.")
	}
	n.conf = `,"name":"other"`
	n.want(cni.Add, "c3", `"pool":"pods"`, "10.64.0.4/26")
	n.conf = `,"cni.dev/valid-attachments":[{"containerID":"c2","ifname":"eth0"}]`
	n.want(cni.GC, "", `"pool":7`, "")
	n.wantLeases("pods 10.64.0.3 c2", "pods 10.64.0.4 c3")
}

// CHECK reports an address in a block that the node has lost.
func TestCheckLost(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.prepare("pods", nil)
	n.want(cni.Add, "c1", `"pool":"pods"`, "10.64.0.2/26")
	n.prepare("pods", func(s *local.State) { s.Blocks[0].Phase = local.Lost })
	n.want(cni.Check, "c1", `"pool":"pods"`,
		"999 address 10.64.0.2 of pool pods is in block 10.64.0.0/26, which this node has lost")
	n.want(cni.Del, "c1", `"pool":"pods"`, "")
	n.wantLeases()
}

// TestHoldEndsBeforeReply: the hold of the first pool ends while ADD allocates from the second one.
// ADD fails, and releases both addresses.
func TestHoldEndsBeforeReply(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"10.64.0.2", "10.79.0.9"} { // of the node, and through the agent
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.agent.serve(t, n.socket)
			n.args = "IP=" + first
			holdEnds(n, "pods "+first+" c1")
		})
	}
}

// holdEnds tests ADD of two pools. first is the lease of the first pool.
func holdEnds(n *node, first string) {
	n.prepare("pods6", nil)
	var end local.Deadline
	n.prepare("pods", func(s *local.State) {
		up, wall := n.agent.store.Clock()()
		end = local.NewDeadline(up, wall, 3*time.Second)
		s.Hold = &end
	})
	waited := false
	n.plugin = cluster.Plugin.Watched(func(op string) error {
		if strings.Contains(op, "pods6") && !waited {
			waited = true
			n.wantLeases(first)
			for !end.Passed(n.agent.store.Clock()) {
				time.Sleep(end.Left(n.agent.store.Clock()))
			}
		}
		return nil
	})
	n.want(cni.Add, "c1", `"pools":["pods","pods6"]`,
		"11 pool pods: the node may not use its blocks")
	if !waited {
		n.Error("the second pool was not used")
	}
	n.wantLeases()
}

// TestKilledAtEachStep: ADD of two families, with an address that the agent provides, dies at each
// change. DEL releases what is left, and the agent learns of it.
func TestKilledAtEachStep(t *testing.T) {
	t.Parallel()
	died := errors.New("died")
	for step := 1; ; step++ {
		n := newNode(t)
		n.prepare("pods", nil)
		n.prepare("pods6", nil)
		n.agent.serve(t, n.socket)
		n.args = "IP=10.79.0.9"
		changes := 0
		n.plugin = cluster.Plugin.Watched(func(string) error {
			if changes++; changes >= step {
				return died
			}
			return nil
		})
		out := n.outcome(cni.Add, "c1", `"pools":["pods6","pods"]`)
		n.plugin = cluster.Plugin
		if changes < step {
			if step < 5 || out != "fd00:64::2/122 via fd00:64::1, 10.79.0.9/26 via 10.79.0.1" {
				t.Errorf("%d changes: %s", changes, out)
			}
			return
		}
		n.want(cni.Del, "c1", `"pool":"pods"`, "")
		n.wantLeases()
		if notes, err := n.agent.store.Notes(); err != nil || len(notes) > 0 {
			t.Errorf("step %d: notes %v, %v", step, notes, err)
		}
	}
}
