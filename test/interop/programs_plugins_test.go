//go:build programs

package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestProgramPluginsChain is TestUpstreamPlugins with upstream plugins built on Tenon's library.
func TestProgramPluginsChain(t *testing.T) {
	t.Parallel()
	newLab(t, compat.dir(t, "plugins")).chain()
}

// programRows are the rows of TestTakeover, and plugins that Debian's package lacks.
var programRows = slices.Concat(takeovers, []takeover{
	{plugin: "dummy", members: dual, kernel: []kernel.Feature{kernel.FeatureDummy}}, {plugin: "tap", members: dual},
	{plugin: "bridge", name: "VLAN", members: `,"vlan":5` + dual, kernel: []kernel.Feature{kernel.FeatureVLANFiltering}},
	{plugin: "portmap", name: "nftables", members: `,"backend":"nftables"` + mapping},
	{plugin: "bridge", name: "masquerading by nftables", members: `,"isGateway":true,"ipMasq":true,"ipMasqBackend":"nftables"` + dual},
})

// TestProgramPlugins: the upstream plugins do the same with both libraries under Tenon's runtime:
// results, the state of host and container after ADD, CHECK and DEL.
func TestProgramPlugins(t *testing.T) {
	t.Parallel()
	for _, row := range programRows {
		t.Run(strings.TrimSuffix(row.plugin+", "+row.name, ", "), func(t *testing.T) {
			t.Parallel()
			testnet.Require(t, testnet.Kernel(row.kernel...))
			sameAs(t, row.log(t, original.dir(t, "plugins")), row.log(t, compat.dir(t, "plugins")))
		})
	}
}

// log attaches and detaches with the plugins in a directory, and describes results and states.
func (row takeover) log(t *testing.T, dir string) string {
	t.Helper()
	r := row.runtime(t)
	call := func(verb cni.Command, prev json.RawMessage) json.RawMessage {
		t.Helper()
		q := r.Request(verb, "c")
		if prev != nil {
			q.Conf["prevResult"] = prev
		}
		return r.Foreign(dir, q)
	}
	state := func() string { return sortedLines(withoutAccidents(r.State())) }
	r.Container("c")
	result := call(cni.Add, nil)
	log := []string{string(result), state(), string(call(cni.Check, result)), string(call(cni.Del, result)), state()}
	return strings.Join(log, "\n")
}

// TestProgramPluginsTakeOver is TestTakeover with upstream plugins built on Tenon's library. It omits
// plugins that behave differently in Debian's version.
func TestProgramPluginsTakeOver(t *testing.T) {
	t.Parallel()
	dir := compat.dir(t, "plugins")
	for _, name := range []string{"ptp", "host-local", "static", "loopback", "vlan", "macvlan", "ipvlan"} {
		i := slices.IndexFunc(takeovers, func(row takeover) bool { return row.plugin == name && row.name == "" })
		for side, tenonAdds := range map[string]bool{"from upstream": false, "to upstream": true} {
			t.Run(name+", "+side, func(t *testing.T) {
				t.Parallel()
				testnet.Require(t, testnet.Kernel(takeovers[i].kernel...))
				takeovers[i].test(t, dir, tenonAdds)
			})
		}
	}
}

// mistake is a call that shows what package skel does itself: the variables of the environment
// without the prefix CNI_, and the configuration, in which TYPE is the name of the plugin.
type mistake struct {
	env  string
	conf string
}

// Variables and configurations of a complete call.
const (
	allBut  = "CONTAINERID=c NETNS=/run/netns/c IFNAME=eth0 PATH=/opt/cni/bin "
	anyConf = `{"cniVersion":"1.0.0","name":"net","type":"TYPE"}`
	newConf = `{"cniVersion":"1.1.0","name":"net","type":"TYPE"}`
)

// mistakes returns the calls for one plugin.
func mistakes() (calls []mistake) {
	calls = []mistake{
		{"", ""}, {"", anyConf}, {allBut, anyConf}, {"COMMAND=", anyConf},
		{"COMMAND=VERSION", ""}, {"COMMAND=VERSION", anyConf}, {"COMMAND=VERSION", "wrong"}, {"COMMAND=VERSION " + allBut, newConf},
		{"COMMAND=version", ""}, {"COMMAND=add " + allBut, anyConf}, {"COMMAND=UPDATE " + allBut, anyConf},
		{allBut + "COMMAND=CHECK", `{"cniVersion":"0.3.1","name":"net","type":"TYPE"}`},
		{allBut + "COMMAND=GC", anyConf}, {allBut + "COMMAND=STATUS", anyConf},
		{"COMMAND=GC PATH=/opt/cni/bin", newConf}, {"COMMAND=STATUS PATH=/opt/cni/bin", newConf},
		{"COMMAND=GC PATH=/opt/cni/bin CONTAINERID=.wrong", newConf},
		{allBut + "COMMAND=ADD NETNS=/proc/nowhere", anyConf}, {allBut + "COMMAND=DEL NETNS=/proc/nowhere", anyConf},
		{"COMMAND=DEL CONTAINERID=c IFNAME=eth0 PATH=/opt/cni/bin", anyConf},
		{allBut + "COMMAND=ADD ARGS=wrong", anyConf}, {allBut + "COMMAND=ADD ARGS=K=V", anyConf},
	}
	for _, verb := range []string{"ADD", "CHECK", "DEL", "GC", "STATUS"} {
		command := "COMMAND=" + verb + " "
		calls = append(calls, mistake{command, anyConf})
		for _, variable := range strings.Fields(allBut) {
			calls = append(calls, mistake{command + strings.Replace(allBut, variable, "", 1), anyConf})
		}
		for _, wrong := range []string{
			"CONTAINERID=.wrong", "CONTAINERID=a/b", "IFNAME=more-than-15-bytes", "IFNAME=..", "IFNAME=a/b", "IFNAME=a:b", "IFNAME=.wrong CONTAINERID=.wrong",
		} {
			calls = append(calls, mistake{allBut + command + wrong, anyConf})
		}
		for _, conf := range []string{
			"", "wrong", "null", "[]", "1", `{}`, `{"cniVersion":"1.0.0","type":"TYPE"}`,
			`{"cniVersion":"1.0.0","name":"","type":"TYPE"}`, `{"cniVersion":"1.0.0","name":"a/b","type":"TYPE"}`, `{"cniVersion":"1.0.0","name":1,"type":"TYPE"}`,
			`{"cniVersion":"wrong","name":"net","type":"TYPE"}`, `{"cniVersion":"1.2.3.4","name":"net","type":"TYPE"}`, `{"cniVersion":"9.9.9","name":"net","type":"TYPE"}`,
			`{"cniVersion":1,"name":"net","type":"TYPE"}`, `{"cniVersion":"","name":"net","type":"TYPE"}`, `{"name":"net","type":"TYPE"}`, `{"cniVersion":"1.0","name":"net","type":"TYPE"}`,
			`{"cniVersion":"1.0.0","name":"net","type":"TYPE","prevResult":1}`, `{"cniVersion":"1.0.0","name":"net","type":"TYPE","prevResult":{}}`,
			`{"cniVersion":"1.0.0","name":"net","type":"TYPE","prevResult":{"cniVersion":"0.4.0"}}`, `{"cniVersion":"1.0.0","name":"net","type":"TYPE","prevResult":{"cniVersion":"1.0.0","ips":[{"address":"wrong"}]}}`,
			`{"cniVersion":"0.2.0","name":"net","type":"TYPE","prevResult":{"ip4":{"ip":"10.0.0.1/24"}}}`,
			`{"cniVersion":"1.0.0","name":"net","type":"TYPE","ipam":{"type":"no-such-plugin"}}`, `{"cniVersion":"1.0.0","name":"net","type":"TYPE","ipam":{"type":"a/b"}}`,
			`{"cniVersion":"1.0.0","name":"net","type":"TYPE","ipam":{"type":"static","addresses":[{"address":"wrong"}]}}`,
			`{"cniVersion":"1.0.0","name":"net","type":"TYPE","master":"no-such-link","device":"no-such-link","vlanId":5,"vrfname":"blue","ipam":{"type":"static","addresses":[{"address":"10.0.0.1/24"}]}}`,
			newConf,
		} {
			calls = append(calls, mistake{allBut + command, conf})
		}
	}
	return calls
}

// TestProgramPluginsErrors: each upstream plugin prints the same and ends with the same status with
// both libraries, when called without a command, with VERSION, and with each kind of mistake.
func TestProgramPluginsErrors(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(original.dir(t, "plugins"))
	must(t, err)
	for _, e := range entries {
		t.Run(e.Name(), func(t *testing.T) {
			t.Parallel()
			var logs [2]string
			for i, built := range []library{original, compat} {
				n := newNode(t)
				n.installUpstream(built)
				n.run("ip", "netns", "add", "c")
				var log strings.Builder
				for _, m := range mistakes() {
					fmt.Fprintf(&log, "%s\n%s\n", m.env, m.call(t, n, e.Name()))
				}
				logs[i] = log.String()
			}
			sameAs(t, logs[0], logs[1])
		})
	}
}

// call runs a plugin and describes what it did.
func (m mistake) call(t *testing.T, n *node, plugin string) string {
	t.Helper()
	cmd := n.command("/usr/bin/timeout", "20", filepath.Join(plugins, plugin))
	cmd.Env = []string{"PATH=" + n.search}
	for _, variable := range strings.Fields(m.env) {
		cmd.Env = append(cmd.Env, "CNI_"+variable)
	}
	conf := strings.ReplaceAll(m.conf, "TYPE", plugin)
	cmd.Stdin = strings.NewReader(conf)
	var out, messages strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &messages
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s\nstdout: %s\nstderr: %s\n%v", conf, out.String(), messages.String(), cmd.ProcessState)
}
