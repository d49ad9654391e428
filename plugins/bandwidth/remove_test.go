package bandwidth_test

import (
	"slices"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestKilled: DEL and GC find the ifb of an ADD that was killed before it set the alias, by its MAC
// address. DEL and GC of another network do not.
func TestKilled(t *testing.T) {
	t.Parallel()
	for name, collect := range map[string]bool{"DEL": false, "GC": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t,
				`,"ingressRate":8000000,"egressRate":8000000,"shapedSubnets":["10.0.0.0/8"]`)
			r.Conf["cniVersion"] = "1.1.0"
			r.Container("c")
			before := r.State()
			result := r.Add("c")
			r.Host.Command("tc", "qdisc", "delete", "dev", "veth0", "clsact")
			for _, i := range result.Interfaces[2:] {
				r.Host.Command("ip", "link", "set", i.Name, "down", "alias", "")
				r.Host.Command("tc", "qdisc", "delete", "dev", i.Name, "root")
			}
			killed := r.State()
			other := r.Collect()
			other.Conf["name"] = "net2"
			r.Must(other)
			r.Must(r.Collect("c"))
			del := r.Request(cni.Del, "c")
			del.Conf["name"] = "net2"
			r.Must(del)
			r.Unchanged(killed)
			if collect {
				r.Must(r.Collect())
			} else {
				r.Must(r.Request(cni.Del, "c"))
			}
			r.Unchanged(before)
		})
	}
}

// TestCollectedWhileUp: GC of an attachment whose container still runs does not interrupt its
// traffic.
func TestCollectedWhileUp(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,`+both+`,"unshapedSubnets":["192.0.2.0/24"]`)
	r.Conf["cniVersion"] = "1.1.0"
	r.Container("c")
	before := r.State()
	ip := r.Add("c").IPs[0]
	r.Must(r.Collect())
	r.Unchanged(before)
	testnet.Reaches(t, r.Container("c"), ip.Gateway, true)
}

// TestStatus: STATUS succeeds if the kernel has the features.
func TestStatus(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,`+both)
	r.Conf["cniVersion"] = "1.1.0"
	q := r.Collect()
	q.Command = cni.Status
	delete(q.Conf, "cni.dev/valid-attachments")
	r.Must(q)
	q.Conf["ingressRate"] = 7
	r.Refused(q, cni.CodeInvalidConfig)
}

// TestVersions: the plugin supports upstream's versions, 0.3.0 and newer.
func TestVersions(t *testing.T) {
	t.Parallel()
	if got := suite.Plugin.Versions; slices.Min(got) != cni.V030 || slices.Max(got) != cni.V110 ||
		len(got) != 5 {
		t.Errorf("versions %v", got)
	}
}
