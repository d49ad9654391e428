package plugins_test

import (
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/judge/plugins"
	"github.com/tenon-cni/tenon/internal/judge/trial"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/tracer"
)

// TestFaults judges plugins that keep two files for each container. DEL of one finds the second file
// only through the first, which ADD writes last.
func TestFaults(t *testing.T) {
	t.Parallel()
	testnet.Long(t)
	testnet.Require(t, testnet.Root, tracer.Supported)
	const plugin = `cd /var/lib
case $CNI_COMMAND in
ADD) echo x >address.$CNI_CONTAINERID; echo x >index.$CNI_CONTAINERID
	echo '{"cniVersion":"1.1.0","ips":[{"address":"10.1.1.1/24"}]}';;
DEL) rm -f ORDER;;
esac
`
	for _, row := range []struct{ name, order, title string }{
		{"all files", "address.$CNI_CONTAINERID index.$CNI_CONTAINERID", ""},
		{"files that an index names", "$(ls index.$CNI_CONTAINERID | sed 's/.*/& &/; s/index/address/')",
			"an interrupted ADD leaves something that DEL does not remove"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(plugin, "ORDER", row.order, 1)
			s, err := plugins.NewSubject(t.Context(), shellPlugin(t, text), plugins.Config{Role: plugins.IPAM})
			if err != nil {
				t.Fatal(err)
			}
			r, err := plugins.Judge(t.Context(), s, trial.Options{Only: []string{"fault-add"}, Faults: true})
			if err != nil {
				t.Fatal(err)
			}
			var titles []string
			for _, f := range r.Findings {
				titles = append(titles, f.Title)
			}
			if got := strings.Join(titles, "; "); !strings.HasPrefix(got, row.title) || row.title == "" && got != "" {
				t.Errorf("findings %q, want %q", got, row.title)
			}
			if len(r.Checks) < 6 {
				t.Errorf("only %d checks", len(r.Checks))
			}
		})
	}
}
