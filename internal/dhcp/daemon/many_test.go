package daemon_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/daemon"
	"github.com/tenon-cni/tenon/internal/dhcp/v4"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestMany checks that 500 leases (100 in short mode) of an earlier daemon are adopted with less than 40 MiB of memory
// and few threads, while all clients send requests at the same time. It logs the time of adoption;
// the budget is 2 s.
func TestMany(t *testing.T) {
	many := 500
	if testing.Short() {
		many = 100
	}
	testnet.Require(t, testnet.Kernel(kernel.FeatureVeth), testnet.Tool("ip"))
	n := testnet.New(t, "c")
	d := newNode(t, n)
	d.stop()
	c := n.Container("c")
	var commands []string
	for i := range many / 2 {
		name, peer := fmt.Sprintf("d%d", i), fmt.Sprintf("d%d", many/2+i)
		commands = append(commands, "link add "+name+" type veth peer name "+peer,
			"link set "+name+" up", "link set "+peer+" up")
	}
	c.Batch(commands...)
	leases, err := dhcp.LeaseFiles(d.socket)
	if err != nil {
		t.Fatal(err)
	}
	c.Do(func() {
		for i := range many {
			var link *net.Interface
			if link, err = net.InterfaceByName(fmt.Sprintf("d%d", i)); err != nil {
				return
			}
			rec := daemon.Record{
				Attachment: cni.Attachment{Network: "lan", Container: "c", IfName: link.Name},
				Place: daemon.Place{Path: c.Path(), NS: testnet.NS(t, c).ID(),
					Index: link.Index, MAC: link.HardwareAddr.String()},
				ClientID: v4.ClientID(link.Name),
				Lease: &v4.Lease{
					Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i / 256),
						byte(i % 256)}), 16), Server: netip.MustParseAddr("10.1.255.1"),
					Renew: time.Now().Add(time.Hour), Rebind: time.Now().Add(2 * time.Hour),
					Expires: time.Now().Add(3 * time.Hour),
				},
			}
			if err = leases.Write(dhcp.FileName(rec.Attachment), &rec); err != nil {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	d.process()
	d.eventuallyAnswers()
	r, err := dhcp.Call(t.Context(), d.socket, dhcp.Request{Verb: dhcp.List})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d leases adopted in %v", len(r.Leases), time.Since(began))
	if len(r.Leases) != many {
		t.Errorf("%d leases, expected %d", len(r.Leases), many)
	}
	status := d.status()
	t.Logf("%v", status)
	if kB := number(status["VmHWM"]); kB > 40<<10 && !raced || kB == 0 {
		t.Errorf("%d KiB of memory", kB)
	}
	if threads := number(status["Threads"]); threads > 50 {
		t.Errorf("%d threads", threads)
	}
}

func number(text string) (n int) {
	fmt.Sscan(text, &n)
	return n
}

// status returns /proc/PID/status of the daemon process.
func (d *node) status() map[string]string {
	d.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.pid))
	if err != nil {
		d.t.Fatal(err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if key == "VmHWM" || key == "VmRSS" || key == "Threads" {
			values[key] = strings.TrimSpace(value)
		}
	}
	return values
}
