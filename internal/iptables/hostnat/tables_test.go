package hostnat_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/iptables"
	"github.com/tenon-cni/tenon/internal/iptables/hostnat"
	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// open opens the nat tables of a namespace.
func open(t testing.TB, ns *testnet.Namespace, f iptables.Family) *hostnat.Tables {
	t.Helper()
	c, err := nft.Open(testnet.NS(t, ns))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	tables := hostnat.Open(testnet.NS(t, ns), f, c)
	t.Cleanup(tables.Close)
	return tables
}

// kubeProxy returns the rules of kube-proxy for a number of services.
func kubeProxy(services int) string {
	var b strings.Builder
	fmt.Fprintln(&b, "*nat\n:KUBE-SERVICES -\n:KUBE-POSTROUTING -\n:KUBE-MARK-MASQ -")
	for i := range services {
		fmt.Fprintf(&b, ":KUBE-SVC-%016d -\n:KUBE-SEP-%016[1]d -\n", i)
	}
	for _, base := range []string{"PREROUTING", "OUTPUT"} {
		fmt.Fprintf(&b, "-A %s -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n", base)
	}
	fmt.Fprintln(&b, `-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING`)
	fmt.Fprintln(&b, `-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000`)
	fmt.Fprintln(&b, `-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN`)
	fmt.Fprintln(&b, `-A KUBE-POSTROUTING -j MASQUERADE --random-fully`)
	for i := range services {
		addr := fmt.Sprintf("%d.%d", i/250, i%250+1)
		fmt.Fprintf(&b, "-A KUBE-SERVICES -d 10.96.%s/32 -p tcp -m comment --comment \"ns/svc%d cluster IP\" -m tcp --dport 80 -j KUBE-SVC-%016[2]d\n", addr, i)
		fmt.Fprintf(&b, "-A KUBE-SVC-%016d ! -s 10.244.0.0/16 -d 10.96.%s/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ\n", i, addr)
		fmt.Fprintf(&b, "-A KUBE-SVC-%016d -m comment --comment \"ns/svc%[1]d\" -j KUBE-SEP-%016[1]d\n", i)
		fmt.Fprintf(&b, "-A KUBE-SEP-%016d -p tcp -m tcp -j DNAT --to-destination 10.244.%s:8080\n",
			i, addr)
	}
	fmt.Fprintln(&b, "COMMIT")
	return b.String()
}

// ask makes the queries of a bridge plugin and of portmap.
func ask(t testing.TB, tables *hostnat.Tables) {
	for _, q := range []hostnat.Query{masqueraded(iptables.IPv4), published("PREROUTING"),
		published("OUTPUT")} {
		if found, err := tables.Find(q); found != nil || err != nil {
			t.Fatal(found, err)
		}
	}
}

// BenchmarkKubeProxy reads tables with 10,000 rules of kube-proxy. The budget is 0.3 ms.
func BenchmarkKubeProxy(b *testing.B) {
	for _, variant := range []string{"none", "nft", "legacy"} {
		b.Run(variant, func(b *testing.B) {
			host := testnet.New(b).Host
			ns := testnet.NS(b, host)
			fill(b, host, variant, 2500)
			c, err := nft.Open(ns)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			host.Do(func() {
				for b.Loop() {
					tables := hostnat.Open(ns, iptables.IPv4, c)
					ask(b, tables)
					tables.Close()
				}
			})
		})
	}
}

func fill(t testing.TB, ns *testnet.Namespace, variant string, services int) {
	t.Helper()
	if variant == "none" {
		return
	}
	testnet.Require(t, testnet.Tool("iptables-"+variant+"-restore"))
	path := t.TempDir() + "/rules"
	if err := os.WriteFile(path, []byte(kubeProxy(services)), 0o600); err != nil {
		t.Fatal(err)
	}
	ns.Command("iptables-"+variant+"-restore", path)
}
