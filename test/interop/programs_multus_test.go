//go:build programs

package interop

import (
	"strings"
	"testing"
)

// multusNetwork has two networks for each container.
const multusNetwork = `{"cniVersion":"1.0.0","name":"multi","plugins":[{"type":"multus","binDir":"` + plugins + `","delegates":[
	{"cniVersion":"1.0.0","name":"pods","plugins":[
		{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"ipam":{"type":"host-local","subnet":"10.85.0.0/16","routes":[{"dst":"0.0.0.0/0"}]}},
		{"type":"firewall"}]},
	{"cniVersion":"1.0.0","name":"single","type":"bridge","bridge":"single0","ipam":{"type":"host-local","subnet":"10.86.0.0/16"}}]}]}`

// TestProgramMultus: multus with Tenon's plugins attaches two interfaces, checks and detaches them,
// prints the same with both libraries, and leaves nothing behind.
func TestProgramMultus(t *testing.T) {
	t.Parallel()
	logs := map[library]string{}
	for _, built := range []library{original, compat} {
		n := newCnitool(t, compat, func(n *node) { n.install() })
		n.run("cp", built.dir(t, "multus")+"/multus", plugins)
		n.write(netDir+"/05-multi.conflist", multusNetwork)
		add := []string{defaults, "add", "multi", "/run/netns/web"}
		check := []string{defaults, "check", "multi", "/run/netns/web"}
		del := []string{defaults, "del", "multi", "/run/netns/web"}
		n.log([][]string{add, del}) // leaves the shared objects
		before := n.snapshot()
		attached := n.log([][]string{{defaults, "status", "multi", "/run/netns/web"}, add, check})
		for _, link := range []string{"eth0", "net1"} {
			n.run("ip", "-n", "web", "link", "show", link)
		}
		logs[built] = attached + n.log([][]string{add, del, del})
		n.unchanged(before)
		if c := strings.Count(logs[built], "exit status 0"); c != 5 {
			t.Errorf("%d calls succeed, want 5:\n%s", c, logs[built])
		}
		n.run("ip", "netns", "del", "web")
		n.run("ip", "netns", "del", "other")
		n.nothingKept()
	}
	sameAs(t, logs[original], logs[compat])
}
