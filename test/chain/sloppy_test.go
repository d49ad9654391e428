package chain

import (
	"encoding/json"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/bandwidth"
	"github.com/tenon-cni/tenon/plugins/firewall"
	"github.com/tenon-cni/tenon/plugins/portmap"
	"github.com/tenon-cni/tenon/plugins/tuning"
)

// TestStepTwo: the previous result of step 2 in the example of the 0.3.1 text, with an index and no
// interfaces, works with each chained plugin in each version of its form (RES-10).
func TestStepTwo(t *testing.T) {
	t.Parallel()
	const prev = `{"ips":[{"version":"4","address":"10.88.0.2/24","interface":0}],"dns":{"nameservers":["10.1.0.1"]}}`
	for _, row := range []struct {
		plugin  plugin.Definition
		members string
	}{
		{tuning.Plugin, `"sysctl":{"net.core.somaxconn":"500"}`},
		{portmap.Plugin, `"runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}`},
		{firewall.Plugin, `"backend":"nftables"`},
		{bandwidth.Plugin, `"ingressRate":8000,"ingressBurst":80000`},
	} {
		t.Run(row.plugin.Name, func(t *testing.T) {
			t.Parallel()
			r := plugintest.NewRuntime(t, row.plugin, `{"name":"dbnet","type":"`+row.plugin.Name+`",`+row.members+`}`)
			if row.plugin.Name == "tuning" {
				r.Conf["dataDir"] = r.Dir
			}
			for _, v := range row.plugin.Versions {
				if !v.SameForm(cni.V031) {
					continue
				}
				r.Conf["cniVersion"] = v.String()
				for _, verb := range []cni.Command{cni.Add, cni.Check, cni.Del} {
					if !v.Has(verb) {
						continue
					}
					q := r.Request(verb, "c")
					q.Conf["prevResult"] = json.RawMessage(prev)
					r.Must(q)
				}
			}
		})
	}
}
