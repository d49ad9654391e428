package operator

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/doctor"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/ops/topology"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/network"
)

// large is the number of attachments of a large host: a bridge has at most 1,024 ports.
const large = 1000

// largeHost makes a host with containers on a bridge, and returns their attachments. Each container
// has a server on port 80.
func largeHost(b *testing.B) (n *testnet.Net, records []network.Record) {
	b.Helper()
	names := make([]string, large)
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
	}
	n = testnet.New(b, names...)
	n.Host.Wire("up0")
	n.Host.Batch("addr add 192.0.2.1/24 dev up0", "route add default via 192.0.2.2 dev up0",
		"link add br0 type bridge", "addr add 10.7.0.1/20 dev br0", "link set br0 up")
	n.Host.Command("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.up0.accept_ra=0")
	list, err := cni.ParseList([]byte(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge",
		"bridge":"br0","isGateway":true,"ipam":{"type":"host-local","subnet":"10.7.0.0/20"}}]}`))
	if err != nil {
		b.Fatal(err)
	}
	var links []string
	for i, name := range names {
		path := n.Container(name).Path()
		links = append(links, fmt.Sprintf("link add v%d master br0 up type veth peer name eth0 netns %s", i, path))
		prefix := fmt.Sprintf("10.7.%d.%d/20", i/250, i%250+2)
		records = append(records, network.Record{State: network.Attached, List: list,
			Parameters: network.Parameters{Netns: path},
			Attachment: cni.Attachment{Network: "pods", Container: name, IfName: "eth0"},
			Result:     &cni.Result{IPs: []cni.IP{{Address: netip.MustParsePrefix(prefix)}}}})
	}
	n.Host.Batch(links...)
	for i, name := range names {
		n.Container(name).Batch("link set lo up", "link set eth0 up",
			"addr add "+records[i].Result.IPs[0].Address.String()+" dev eth0",
			"route add default via 10.7.0.1")
		serve(b, n.Container(name), 80)
	}
	return n, records
}

// measure measures a function in the namespace of the host, and reports the time on processors, which
// depends less on other programs than the duration.
func measure(b *testing.B, n *testnet.Net, once func() error) {
	b.Helper()
	before := cpuTime(b)
	err := n.Host.Run(func() error {
		for b.Loop() {
			if err := once(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric((cpuTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
}

// cpuTime returns the time that the process has spent on processors.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(unix.TimevalToNsec(u.Utime) + unix.TimevalToNsec(u.Stime))
}

// BenchmarkMap reads a large host from the kernel and prints its map.
func BenchmarkMap(b *testing.B) {
	n, records := largeHost(b)
	measure(b, n, func() error {
		places, err := topology.Read(b.Context(), records)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := text.Map(&out, topology.Build(places).Tree(false)); err != nil {
			return err
		}
		if !bytes.Contains(out.Bytes(), []byte("1000 attachments in 1 network; no problems")) {
			return fmt.Errorf("skipped %v\n%s", places.Host.Skipped, out.Bytes())
		}
		return nil
	})
}

// BenchmarkWhy reads a large host from the kernel and follows one packet.
func BenchmarkWhy(b *testing.B) {
	n, records := largeHost(b)
	measure(b, n, func() error {
		places, err := why.Read(b.Context(), records)
		if err != nil {
			return err
		}
		from, err := places.Find("c5", "")
		if err != nil {
			return err
		}
		q := why.Question{Source: from.ID, To: records[7].Result.IPs[0].Address.Addr(),
			Protocol: unix.IPPROTO_TCP, Port: 80}
		if r, err := places.Explain(q); err != nil || r.Verdict != why.Delivered {
			return fmt.Errorf("%+v, %w", r, err)
		}
		return nil
	})
}

// BenchmarkDoctor reads a large host from the kernel and runs all checks. None may reach its deadline.
func BenchmarkDoctor(b *testing.B) {
	n, records := largeHost(b)
	dir := b.TempDir()
	measure(b, n, func() error {
		s, err := doctor.Read(b.Context(), doctor.Options{Records: records, NetDir: dir,
			StateDir: dir, PluginDirs: []string{dir}, OnlyPaths: true})
		if err != nil {
			return err
		}
		for _, c := range doctor.Run(b.Context(), s, doctor.Checks(), nil).Checks {
			if c.Status == doctor.TimedOut || c.Status == doctor.Crashed {
				return fmt.Errorf("%s: %s: %s", c.ID, c.Status, c.Reason)
			}
		}
		return nil
	})
}

// BenchmarkServices follows a packet on a host with the rules of kube-proxy for 10,000 services.
func BenchmarkServices(b *testing.B) {
	testnet.Require(b, testnet.Tool("iptables"))
	n := testnet.New(b, "web", "db")
	n.Host.Wire("up0")
	n.Host.Batch("addr add 192.0.2.1/24 dev up0", "route add default via 192.0.2.2 dev up0")
	if out, err := n.Host.Output(kubeProxy(10_000), "sh"); err != nil {
		b.Fatal(err, out)
	}
	measure(b, n, func() error {
		places, err := why.Read(b.Context(), nil)
		if err != nil {
			return err
		}
		from, err := places.Find("host", "")
		if err != nil {
			return err
		}
		q := why.Question{Source: from.ID, To: netip.MustParseAddr("10.96.39.240")}
		if err := q.SetPort("80", false); err != nil {
			return err
		}
		r, err := places.Explain(q)
		if err == nil && (r.Verdict != why.Stopped || !strings.Contains(describe(r), "10.77.0.2 via")) {
			err = errors.New(describe(r))
		}
		return err
	})
}
