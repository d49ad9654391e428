//go:build programs

package interop

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

const (
	webPort   = `CAP_ARGS={"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}`
	otherPort = `CAP_ARGS={"portMappings":[{"hostPort":8081,"containerPort":80,"protocol":"tcp"}]}`
	defaults  = "CNI_PATH=" + plugins
)

// cnitoolSteps are calls of cnitool, with variables of the environment before the verb. After the
// first, network namespaces web and other exist.
var cnitoolSteps = [][]string{
	{"--help"},
	{"add", "--help"},
	{defaults, "status", "pods", "/run/netns/web"},
	{defaults, webPort, "add", "pods", "/run/netns/web"},
	{defaults, webPort, "check", "pods", "/run/netns/web"},
	{defaults, webPort, "add", "pods", "/run/netns/other", "--ifname", "late0"}, // the port is in use
	{defaults, otherPort, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=other", "CNI_IFNAME=net1", "add", "pods", "/run/netns/other"},
	{defaults, otherPort, "check", "pods", "/run/netns/other", "-i", "net1"},
	{defaults, "check", "pods", "/run/netns/other", "-i", "net2"}, // not attached
	{defaults, "add", "single", "/run/netns/web", "-i", "one"},
	{defaults, "check", "single", "/run/netns/web", "-i", "one"},
	{defaults, "del", "single", "/run/netns/web", "-i", "one"},
	{defaults, "add", "old", "/run/netns/web", "-i", "old0"},
	{defaults, "check", "old", "/run/netns/web", "-i", "old0"}, // no CHECK in this version
	{defaults, "del", "old", "/run/netns/web", "-i", "old0"},
	{defaults, "del", "old", "/run/netns/web", "-i", "old0"},
	// mistakes
	{defaults, "add", "unknown", "/run/netns/web"},
	{defaults, "add", "missing", "/run/netns/web"}, // no such plugin
	{defaults, "add", "single", "/run/netns/web", "-i", "a-name-that-is-too-long"},
	{defaults, "add", "single", "/run/netns/web", "-i", "a/b"},
	{defaults, "add", "single", "/run/netns/gone"},
	{defaults, "CNI_ARGS=wrong", "add", "single", "/run/netns/web", "-i", "one"},
	{defaults, "CAP_ARGS=wrong", "add", "single", "/run/netns/web", "-i", "one"},
	{"CNI_PATH=", "add", "single", "/run/netns/web"},
	{"CNI_PATH=/nowhere:/run", "status", "pods", "/run/netns/web"},
	{defaults, "NETCONFPATH=/nowhere", "add", "single", "/run/netns/web"},
	{defaults, "add", "single"},
	{defaults, "status", "broken", "/run/netns/web"},
	{defaults, "add", "broken", "/run/netns/web", "-i", "one"},
	{defaults, "gc", "broken", "/run/netns/web"},
	{defaults, "del", "broken", "/run/netns/web", "-i", "one"},
	// the end
	{defaults, webPort, "del", "pods", "/run/netns/web"},
	{defaults, webPort, "del", "pods", "/run/netns/web"},
	{defaults, "gc", "pods", "/run/netns/other"}, // without attachments in use
	{defaults, "status", "single", "/run/netns/web"},
}

// cnitoolNetworks are the networks of cnitoolSteps: a list in the newest version, single plugins in
// several versions, and networks that cannot work.
var cnitoolNetworks = map[string]string{
	"10-pods.conflist": `{"cniVersion":"1.1.0","name":"pods","plugins":[
		{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"ipam":{"type":"host-local","subnet":"10.85.0.0/16","routes":[{"dst":"0.0.0.0/0"}]}},
		{"type":"portmap","capabilities":{"portMappings":true}}]}`,
	"20-single.conf":     `{"cniVersion":"1.0.0","name":"single","type":"bridge","bridge":"single0","ipam":{"type":"host-local","subnet":"10.86.0.0/16"}}`,
	"30-old.conf":        `{"cniVersion":"0.3.1","name":"old","type":"bridge","bridge":"old-bridge","ipam":{"type":"host-local","subnet":"10.87.0.0/16"}}`,
	"40-missing.conf":    `{"cniVersion":"1.0.0","name":"missing","type":"no-such-plugin"}`,
	"50-broken.conflist": `{"cniVersion":"1.1.0","name":"broken","plugins":[{"type":"bridge","bridge":"broken0","ipam":{"type":"host-local","subnet":"wrong"}},{"type":"no-such-plugin"}]}`,
}

// TestProgramCnitool: cnitool prints the same, ends with the same status, and leaves the same cache
// and the same network after each step, with upstream's library and with Tenon's, if that does not
// roll back.
func TestProgramCnitool(t *testing.T) {
	t.Parallel()
	withPlugins(t, func(t *testing.T, install func(*node)) {
		logs := map[library]string{}
		for _, built := range []library{original, compat} {
			n := newCnitool(t, built, install)
			n.env = []string{withoutRollback}
			logs[built] = n.log(cnitoolSteps)
		}
		sameAs(t, logs[original], logs[compat])
	})
}

// cnitool is a node with networks, containers and cnitool.
type cnitool struct {
	*node
	program string
	env     []string // of all calls
}

func newCnitool(t *testing.T, built library, install func(*node)) *cnitool {
	t.Helper()
	n := &cnitool{node: newNode(t), program: built.dir(t, "cnitool") + "/cnitool"}
	install(n.node)
	for name, text := range cnitoolNetworks {
		n.write(netDir+"/"+name, text)
	}
	for _, name := range []string{"web", "other"} {
		n.run("ip", "netns", "add", name)
	}
	return n
}

// call runs cnitool. Arguments with a "=" before the verb are variables of the environment.
func (n *cnitool) call(args ...string) *exec.Cmd {
	verb := slices.IndexFunc(args, func(arg string) bool { return !strings.Contains(arg, "=") })
	cmd := n.command(append([]string{n.program}, args[verb:]...)...)
	cmd.Env = slices.Concat([]string{"PATH=" + n.search, "NETCONFPATH=" + netDir}, n.env, args[:verb])
	return cmd
}

// log runs steps and describes what each did.
func (n *cnitool) log(steps [][]string) string {
	n.t.Helper()
	var log strings.Builder
	objects := func() string { return testnet.WithoutSettings(n.snapshot()) }
	state := objects()
	for _, step := range steps {
		cmd := n.call(step...)
		var out, messages strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &messages
		err := cmd.Run()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			n.t.Fatal(err)
		}
		now := objects()
		fmt.Fprintf(&log, "$ cnitool %s\n%s%s%v\n", strings.Join(step, " "), out.String(), messages.String(), cmd.ProcessState)
		fmt.Fprintf(&log, "cache: %s\n", n.cache())
		fmt.Fprintf(&log, "%s\n", sortedLines(withoutAccidents(testnet.Diff(state, now))))
		state = now
	}
	return log.String()
}

// cache returns the names and contents of cached results.
func (n *node) cache() string {
	n.t.Helper()
	return n.run("sh", "-c", `cd /var/lib/cni/results 2>/dev/null && for f in *; do [ ! -f "$f" ] || { echo "$f"; jq -S . "$f" || cat "$f"; }; done; exit 0`)
}

// TestProgramCnitoolRollback: cnitool on Tenon's library leaves nothing behind when a plugin of the
// chain fails, and prints the plugin's error.
func TestProgramCnitoolRollback(t *testing.T) {
	t.Parallel()
	withPlugins(t, func(t *testing.T, install func(*node)) {
		n := newCnitool(t, compat, install)
		n.installNote()
		n.write(netDir+"/10-pods.conflist", withNote(cnitoolNetworks["10-pods.conflist"]))
		_, err := output(n.call(defaults, webPort, "add", "pods", "/run/netns/web"))
		must(t, err)
		_, err = output(n.call(defaults, webPort, "del", "pods", "/run/netns/web"))
		must(t, err)
		before := n.snapshot()
		n.write(noteDir+"/refuse", "")
		_, err = output(n.call(defaults, webPort, "add", "pods", "/run/netns/web"))
		saysNoNotes(t, err)
		n.unchanged(before)
		n.run("ip", "netns", "del", "web")
		n.run("ip", "netns", "del", "other")
		n.nothingKept()
	})
}

// withNote adds the plugin of testdata/note to the end of a network's plugins.
func withNote(network string) string { return strings.TrimSuffix(network, "]}") + noteConf + "]}" }

// TestProgramCnitoolMoves: cnitool on one library checks and deletes an attachment that cnitool on
// the other made, and so does Tenon's command.
func TestProgramCnitoolMoves(t *testing.T) {
	t.Parallel()
	n := newCnitool(t, original, func(n *node) { n.install() })
	tenon := []string{n.dir + "/tenon"}
	other := &cnitool{node: n.node, program: compat.dir(t, "cnitool") + "/cnitool"}
	must := func(c *cnitool, verb string) {
		t.Helper()
		if _, err := output(c.call(defaults, webPort, verb, "pods", "/run/netns/web")); err != nil {
			t.Error(err)
		}
	}
	must(n, "add")
	must(n, "del") // leaves the shared objects
	before := n.snapshot()
	for _, order := range [][2]*cnitool{{n, other}, {other, n}} {
		must(order[0], "add")
		must(order[1], "check")
		must(order[1], "del")
		n.unchanged(before)
		must(order[0], "add")
		if ps := n.run(append(tenon, "ps")...); !strings.Contains(ps, "pods") {
			t.Errorf("tenon ps does not list the attachment: %s", ps)
		}
		n.run(append(tenon, "gc", "pods", "--all-runtimes", "--keep-none", "--net-dir", netDir)...)
		n.unchanged(before)
	}
	n.run("ip", "netns", "del", "web")
	n.run("ip", "netns", "del", "other")
	n.nothingKept()
}
