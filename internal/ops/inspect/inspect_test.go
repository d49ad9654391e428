package inspect_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/network"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestStates(t *testing.T) {
	t.Parallel()
	id, err := statefile.BootID()
	if err != nil {
		t.Fatal(err)
	}
	alive := testnet.New(t).Container("web").Path()
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		record network.Record
		want   inspect.State
	}{
		"attached":              {record(network.Attached, id, alive), inspect.OK},
		"boot not recorded":     {record(network.Attached, "", alive), inspect.OK},
		"interface is there":    {result(record(network.Attached, id, alive), cni.Interface{Name: "lo", Sandbox: alive}), inspect.OK},
		"interface is gone":     {result(record(network.Attached, id, alive), cni.Interface{Name: "eth0", Sandbox: alive}), inspect.InterfaceGone},
		"interface of the host": {result(record(network.Attached, id, alive), cni.Interface{Name: "br0"}), inspect.OK},
		"old result":            {result(record(network.Attached, id, alive)), inspect.InterfaceGone},
		"namespace is gone":     {result(record(network.Attached, id, "/nowhere"), cni.Interface{Name: "eth0", Sandbox: alive}), inspect.NamespaceGone},
		"path is gone":          {record(network.Attached, id, "/nowhere"), inspect.NamespaceGone},
		"path is a plain file":  {record(network.Attached, id, plain), inspect.NamespaceGone},
		"path not recorded":     {record(network.Attached, "", ""), inspect.Unknown},
		"path cannot be opened": {record(network.Attached, id, strings.Repeat("x", 5000)), inspect.Unknown},
		"being added":           {record(network.Adding, id, alive), inspect.Adding},
		"being deleted":         {record(network.Deleting, id, alive), inspect.Deleting},
		"before this boot":      {record(network.Attached, "another", alive), inspect.EarlierBoot},
		"added before it":       {record(network.Adding, "another", alive), inspect.EarlierBoot},
	} {
		got, err := inspect.Attachments([]network.Record{row.record})
		if err != nil || got[0].State != row.want || got[0].Age < time.Hour ||
			got[0].Age > 2*time.Hour {
			t.Errorf("%s: %v, age %v, %v; want %v", name, got[0].State, got[0].Age, err, row.want)
		}
	}
}

func record(s network.State, boot, netns string) network.Record {
	return network.Record{
		State: s, BootID: boot, Created: time.Now().Add(-time.Hour), Parameters: network.Parameters{Netns: netns},
	}
}

// result adds a result with an address to a record.
func result(r network.Record, interfaces ...cni.Interface) network.Record {
	r.Attachment.IfName = "eth0"
	r.Result = &cni.Result{
		Interfaces: interfaces,
		IPs:        []cni.IP{{Address: netip.MustParsePrefix("10.1.2.3/24")}},
	}
	return r
}

func TestHolder(t *testing.T) {
	t.Parallel()
	attached := func(network, container, ifName string, s inspect.State) inspect.Attachment {
		var a inspect.Attachment
		a.Attachment, a.State = cni.Attachment{
			Network:   network,
			Container: container,
			IfName:    ifName,
		}, s
		return a
	}
	attachments := []inspect.Attachment{
		attached(
			"pods",
			"web",
			"eth0",
			inspect.NamespaceGone,
		), attached("pods", "web", "eth1", inspect.OK),
		attached("other", "db", "eth0", inspect.OK),
	}
	for name, row := range map[string]struct {
		network string
		owner   ipam.Owner
		want    string
	}{
		"its interface":                       {"pods", ipam.Owner{Container: "web", IfName: "eth0"}, "pods/web/eth0 true"},
		"no interface: one that still exists": {"pods", ipam.Owner{Container: "web"}, "pods/web/eth1 true"},
		"another interface":                   {"pods", ipam.Owner{Container: "web", IfName: "eth2"}, "// false"},
		"another network":                     {"pods", ipam.Owner{Container: "db", IfName: "eth0"}, "// false"},
	} {
		holder, ok := inspect.Holder(attachments, row.network, ipam.Lease{Owner: row.owner})
		if got := fmt.Sprint(holder.Attachment, " ", ok); got != row.want {
			t.Errorf("%s: got %s, want %s", name, got, row.want)
		}
	}
}
