//go:build programs

package interop

import (
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// whereaboutsNetwork gets its addresses from whereabouts.
const whereaboutsNetwork = `{"cniVersion":"1.0.0","name":"where","plugins":[{"type":"bridge","bridge":"where0","isGateway":true,
	"ipam":{"type":"whereabouts","range":"10.96.0.0/24","configuration_path":"/run/whereabouts.conf"}}]}`

// apiConfig leads a client of Kubernetes to SERVER.
const apiConfig = `{"apiVersion":"v1","kind":"Config","current-context":"test",
	"clusters":[{"name":"test","cluster":{"server":"http://SERVER"}}],
	"contexts":[{"name":"test","context":{"cluster":"test","user":"test","namespace":"kube-system"}}],
	"users":[{"name":"test","user":{"token":"none"}}]}`

// TestProgramWhereabouts: whereabouts gives addresses to Tenon's bridge and takes them back, and
// behaves the same with both libraries.
func TestProgramWhereabouts(t *testing.T) {
	t.Parallel()
	logs := map[library]string{}
	for _, built := range []library{original, compat} {
		n := newCnitool(t, compat, func(n *node) { n.install() })
		n.run("cp", built.dir(t, "whereabouts")+"/whereabouts", plugins)
		n.write(netDir+"/05-where.conflist", whereaboutsNetwork)
		api := &kubeAPI{objects: map[string]object{}}
		n.run("ip", "link", "set", "lo", "up")
		n.write("/run/whereabouts.conf", `{"kubernetes":{"kubeconfig":"/run/kubeconfig"}}`)
		n.write("/run/kubeconfig", strings.Replace(apiConfig, "SERVER", n.serveHTTP(api), 1))
		call := func(verb, container string) []string {
			return []string{defaults, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + container,
				verb, "where", "/run/netns/" + container}
		}
		logs[built] = n.log([][]string{call("add", "web"), call("add", "other")})
		for _, address := range []string{"10.96.0.1/24", "10.96.0.2/24"} {
			if !strings.Contains(logs[built], address) {
				t.Errorf("nobody has %s:\n%s", address, logs[built])
			}
		}
		logs[built] += n.log([][]string{call("del", "web"), call("del", "web"), call("del", "other")})
		pools := api.collection("ippools")
		if len(pools) != 1 {
			t.Errorf("pools: %v", pools)
		}
		for _, pool := range pools {
			if allocations := pool["spec"].(object)["allocations"].(object); len(allocations) > 0 {
				t.Errorf("allocations left: %v", allocations)
			}
		}
		if left := api.collection("overlappingrangeipreservations"); left != nil {
			t.Errorf("reservations left: %v", left)
		}
		n.run("ip", "netns", "del", "web")
		n.run("ip", "netns", "del", "other")
		n.nothingKept()
	}
	messages := regexp.MustCompile(`(?m)^[IWE][0-9]{4} .*\n`) // of the client of Kubernetes; their order varies
	sameAs(t, messages.ReplaceAllString(logs[original], ""), messages.ReplaceAllString(logs[compat], ""))
}

// serveHTTP serves on the loopback interface of the node, and returns the address.
func (n *node) serveHTTP(h http.Handler) (address string) {
	n.t.Helper()
	var l net.Listener
	must(n.t, n.Host.Run(func() (err error) {
		l, err = net.Listen("tcp4", "127.0.0.1:0")
		return err
	}))
	s := &http.Server{Handler: h}
	n.t.Cleanup(func() { s.Close() })
	go func() { _ = s.Serve(l) }()
	return l.Addr().String()
}
