package text_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ops/doctor"
	"github.com/tenon-cni/tenon/internal/ops/text"
)

// examined is a report with each outcome of a check.
var examined = &doctor.Report{
	Host: "node-7", Kernel: "6.1", Attachments: 214, Networks: 3, Seconds: 0.84, Time: time.Unix(0, 0),
	Checks: []doctor.Result{
		{ID: "kernel.features", Status: doctor.Passed},
		{ID: "limits.inotify", Status: doctor.Passed}, {ID: "limits.files", Status: doctor.Passed},
		{ID: "firewall.drops", Status: doctor.Failed},
		{ID: "firewall.nat", Status: doctor.TimedOut, Reason: "not finished after 1.5s"},
		{ID: "addresses.leaked", Status: doctor.Warned},
		{ID: "traffic.outside", Status: doctor.Crashed, Reason: "index out of range"},
		{ID: "dns.resolver", Status: doctor.Skipped, Reason: "no permission"},
		{ID: "dhcp.daemon", Status: doctor.Skipped, Reason: "not used", Unused: true},
		{ID: "dhcp.files", Status: doctor.Skipped, Reason: "not used", Unused: true},
	},
	Findings: []doctor.Finding{
		{
			ID: "firewall.forward-drop", Severity: doctor.Error,
			Title: "containers cannot reach other hosts", Text: "Docker set the policy.\nNo rule accepts cni0.",
			Affects: []string{"pods", "web"},
			Fix: []doctor.Fix{{Command: "iptables -I DOCKER-USER -i cni0 -j ACCEPT",
				Effect: "opens forwarding for cni0"}},
			Evidence: []doctor.Evidence{{Command: "iptables -S FORWARD", Text: "-P FORWARD DROP"}},
		},
		{
			ID: "addresses.leaked", Severity: doctor.Warning, Title: "51 of 253 addresses are leaked",
			Affects: strings.Fields("a b c d e f g h i j"),
			Fix: []doctor.Fix{{Command: "tenon gc pods", Safe: true,
				Apply: func(context.Context) error { return nil }}},
		},
		{ID: "firewall.mixed", Severity: doctor.Info, Title: "rules in both variants"},
	},
}

// terminal is a writer with a width.
type terminal struct {
	strings.Builder
	width int
}

func (t *terminal) Width() int { return t.width }

func TestDoctor(t *testing.T) {
	t.Parallel()
	const want = ` tenon 0.9 on node-7, kernel 6.1, 214 attachments in 3 networks   0.8 s
 ✓ kernel 1   ✓ limits 2   ✗ firewall 1
 ! addresses 1   ? traffic
 - dns (no permission)   - dhcp (not used)

 ✗ firewall.forward-drop      containers cannot reach other hosts
   Docker set the policy.
   No rule accepts cni0.
   affects pods, web
   fix    iptables -I DOCKER-USER -i cni0 -j ACCEPT
          safe: no, opens forwarding for cni0; not applied by --fix
   see    iptables -S FORWARD
          -P FORWARD DROP

 ! addresses.leaked           51 of 253 addresses are leaked
   affects a, b, c, d, e, f, g, h and 2 more
   fix    tenon gc pods
          safe: yes; applied by --fix after a second look

 i firewall.mixed             rules in both variants

 3 findings (1 error, 1 warning, 1 note); 3 checks passed, 3 skipped: firewall.nat (not finished after 1.5s); traffic.outside (index out of range); dns.resolver (no permission)
`
	w := &terminal{width: 45}
	if err := text.Doctor(w, examined, "tenon 0.9", false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, w.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var all strings.Builder
	if err := text.Doctor(&all, examined, "tenon 0.9", true); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{" ✓ kernel.features\n", " ✗ firewall.drops\n", " ? firewall.nat ",
		" - dhcp.daemon                  not used\n"} {
		if !strings.Contains(all.String(), line) {
			t.Errorf("no line %q in\n%s", line, all.String())
		}
	}
}

// TestFold: findings of one kind are folded, unless all are asked for.
func TestFold(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		findings int
		all      bool
		want     int
		folded   string
	}{
		{4, false, 4, ""}, {9, false, 3, " ✗ mtu.ends                   6 more: tenon doctor mtu.path -v\n"},
		{9, true, 9, ""},
	} {
		r := &doctor.Report{}
		for range x.findings {
			r.Findings = append(r.Findings, doctor.Finding{ID: "mtu.ends", Severity: doctor.Error,
				Title: "ends differ", Check: "mtu.path"})
		}
		var w strings.Builder
		if err := text.Doctor(&w, r, "tenon", x.all); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(w.String(), "ends differ"); n != x.want ||
			!strings.Contains(w.String(), x.folded) || x.folded == "" && strings.Contains(w.String(), "more:") {
			t.Errorf("%d findings, all %t: %d printed\n%s", x.findings, x.all, n, w.String())
		}
	}
}

func TestFixes(t *testing.T) {
	t.Parallel()
	var w strings.Builder
	text.SafeFixes(&w, doctor.Safe(examined))
	text.Applied(&w, []doctor.Applied{
		{ID: "addresses.leaked", Command: "tenon gc pods"},
		{ID: "leftovers.links", Command: "ip link del veth1", Gone: true},
		{ID: "leftovers.rules", Command: "tenon gc", Error: "no permission"},
	})
	const want = `
 fixes to apply:
   addresses.leaked           tenon gc pods

 ✓ addresses.leaked           fixed: tenon gc pods
 - leftovers.links            not applied: the second look did not find the problem
 ✗ leftovers.rules            tenon gc: no permission
`
	if diff := cmp.Diff(want, w.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
