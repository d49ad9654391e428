package portmap_test

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// kubeProxy loads the rules of kube-proxy for a service that leads to a pod: 10.96.0.10:80 or
// [fd00:96::10]:80, and port 30080 of the node.
func (h *host) kubeProxy(pod netip.Addr, target string) {
	h.t.Helper()
	tool, clusterIP, pods, host := "iptables-restore", "10.96.0.10", "10.1.0.0/16", pod.String()
	if pod.Is6() {
		tool, clusterIP, pods, host = "ip6tables-restore", "fd00:96::10", "fd00:1::/48", "["+host+"]"
	}
	rules, err := os.ReadFile("testdata/kube-proxy.rules")
	must(h.t, err)
	text := strings.NewReplacer(
		"$POD:$TARGET", host+":"+target, "$CLUSTERIP", clusterIP, "$PODS", pods, "$PORT", "80", "$NODEPORT", "30080", "$POD", pod.String(),
	).Replace(string(rules))
	path := filepath.Join(h.t.TempDir(), "rules")
	must(h.t, os.WriteFile(path, []byte(text), 0o600))
	h.Host.Command(tool, "--noflush", path)
}

// bridgedFrames needs br_netfilter, which a Kubernetes node has.
func bridgedFrames() error {
	_, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables")
	return err
}

// TestServiceClients: a pod sees the address of a client in its subnet that connects through a
// service, even if the same host port leads to the pod. Connections through the host port itself
// are masqueraded, because otherwise the reply would bypass the node.
func TestServiceClients(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, backend string) {
		testnet.Require(t, testnet.Tool("ip6tables-restore"), bridgedFrames)
		for _, members := range []string{"", `,"masqAll":true`} {
			t.Run(members, func(t *testing.T) {
				t.Parallel()
				h := newHost(t, withBackend(backend)+members)
				// As on every Kubernetes node, packets between pods of one bridge pass the rules.
				h.Host.Command("sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1",
					"net.bridge.bridge-nf-call-ip6tables=1")
				server, client := h.attach("server", 0), h.attach("client", 0)
				serve(t, h.Container("server"), "server", "", 8000)
				for _, pod := range server {
					h.kubeProxy(pod, "8000")
				}
				h.add("server", both(80, 8000, ""))
				for i, row := range []struct{ service, node, gateway string }{
					{"10.96.0.10", "192.0.2.1", "10.1.0.1"}, {"fd00:96::10", "2001:db8::1",
						"fd00:1::1"},
				} {
					for _, way := range []struct{ name, from, address, seenAs string }{
						{"cluster IP", "client", net.JoinHostPort(row.service, "80"),
							client[i].String()},
						{"node port", "client", net.JoinHostPort(row.node, "30080"),
							client[i].String()},
						{"host port", "client", net.JoinHostPort(row.node, "80"), row.gateway},
						{"directly", "client", net.JoinHostPort(server[i].String(), "8000"),
							client[i].String()},
						{"cluster IP, itself", "server", net.JoinHostPort(row.service, "80"),
							row.gateway},
						{"host port, itself", "server", net.JoinHostPort(row.node, "80"),
							row.gateway},
					} {
						for _, network := range []string{"tcp", "udp"} {
							_, seen, err := ask(h.Container(way.from), network, way.address, inTime)
							if err != nil || seen.String() != way.seenAs {
								t.Errorf("%s over %s, %s: the server sees %s (%v), want %s",
									way.name, network, way.address, seen, err, way.seenAs)
							}
						}
					}
				}
			})
		}
	})
}
