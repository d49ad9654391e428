package plugins

import (
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// statusCases judge STATUS.
var statusCases = []*Case{statusCase, statusDelegateCase, statusFullCase, statusDaemonCase}

// statusCase calls STATUS of a plugin when ADD works.
var statusCase = &Case{
	Name: "status", Oldest: cni.V110, Once: true, Rows: []string{"PL-STA-01", "PL-STA-06", "PL-STA-07", "PL-STA-08"},
	Script: func(s *Setup) (*script.Scenario, string) {
		return s.Scenario(1, quiet(s.Call("status", cni.Status, 0)),
			quiet(s.Call("bare", cni.Status, 0, Without("CNI_PATH", "PATH"))),
			quiet(s.Call("old", cni.Status, 0, With("cniVersion", "1.0.0"))),
			quiet(s.Call("add", cni.Add, 1))), ""
	},
	Judge: func(j *Judgment) {
		j.refusesVersion("old", "PL-STA-06")
		if !j.Requires("add") {
			return
		}
		if !j.Succeeded("status", Verdict{Row: "PL-STA-01", Severity: report.High, Title: "STATUS fails although ADD succeeds",
			Hint: "if STATUS fails, runtimes regard the node as one without network"}) {
			return
		}
		j.Pass("PL-STA-08")
		if j.Setup.delegates() == "" {
			j.NotApplicable("PL-STA-07", "the plugin needs CNI_PATH for its IPAM plugin")
			return
		}
		j.Succeeded("bare", Verdict{Row: "PL-STA-07", Severity: report.Low, Title: "STATUS requires CNI_PATH",
			Hint: "a plugin without delegates needs no variable but CNI_COMMAND; libcni requires CNI_PATH on each verb"})
	},
}

// statusDelegateCase judges how STATUS runs the IPAM plugin.
var statusDelegateCase = &Case{
	Name: "status-delegate", Roles: []Role{Interface}, Oldest: cni.V110, Once: true,
	Rows: []string{"PL-STA-04", "PL-STA-02", "DLG-03", "DLG-04", "CFG-34", "DLG-10"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if reason := s.delegates(); reason != "" {
			return nil, reason
		}
		options := []func(*Draft){With("conform.dev/exact", exact), Env("CONFORM_VARIABLE", "a b=c")}
		return s.Scenario(1, quiet(s.Call("status", cni.Status, 0, options...)),
			answer(cni.Status, s.refuses(cni.CodeNotAvailable)), quiet(s.Call("refused", cni.Status, 0, options...)),
			answer(cni.Status, s.refuses(cni.CodeIncompatibleVersion)), quiet(s.Call("unknown", cni.Status, 0, options...)),
		), ""
	},
	Judge: func(j *Judgment) {
		d, ok := j.forwarded("status", cni.Status, "PL-STA-04")
		if !ok {
			return
		}
		calls := map[string]script.Recorded{"status": d}
		j.sameEnvironment(calls)
		j.sameConfiguration(calls)
		if j.reportsRefusal("refused", "PL-STA-04", "STATUS succeeds although STATUS of the IPAM plugin fails") {
			j.unavailable("refused", "STATUS hides the code of the IPAM plugin")
		}
		j.Succeeded("unknown", Verdict{Row: "DLG-10", Severity: report.Medium,
			Title: "STATUS fails if the IPAM plugin does not support version 1.1.0",
			Hint:  "an IPAM plugin that answers code 1 to STATUS does not know it; its ADD may work"})
	},
}

// unavailable expects that a call of STATUS failed with one of the codes for it.
func (j *Judgment) unavailable(name, title string) bool {
	r, _ := j.Call(name)
	e, err := cni.DecodeError(r.Stdout)
	return j.Expect(err == nil && (e.Code == cni.CodeNotAvailable || e.Code == cni.CodeLimitedConnectivity), Verdict{
		Row: "PL-STA-02", Severity: report.Medium, Title: title,
		Expected: "code 50, or 51 if existing containers may have limited connectivity", Actual: describe(r)})
}

// statusFullCase calls STATUS while a pool of one address is full, and after its container has ended.
var statusFullCase = &Case{
	Name: "status-full", Roles: []Role{IPAM}, Oldest: cni.V110, Once: true, Rows: []string{"PL-STA-01", "PL-STA-02", "PL-STA-03"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if s.Config.Exhausted == nil {
			return nil, noPool
		}
		return s.Scenario(2, quiet(s.Call("add", cni.Add, 1, s.exhausted())), quiet(s.Call("add2", cni.Add, 2, s.exhausted())),
			quiet(s.Call("full", cni.Status, 0, s.exhausted())), quiet(s.Call("del", cni.Del, 1, s.exhausted())),
			quiet(s.Call("free", cni.Status, 0, s.exhausted()))), ""
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") {
			return
		}
		if !j.failed("add2") {
			j.Stopped = overbooked
			return
		}
		r, _ := j.Call("full")
		j.Claim("full")
		switch {
		case j.failed("full"):
			j.Pass("PL-STA-03")
			j.unavailable("full", "STATUS reports a full pool with another code than 50")
		case strings.TrimSpace(string(r.Stderr)) != "":
			j.Info("PL-STA-03", "STATUS succeeds with a warning while the pool is full: "+strings.TrimSpace(string(r.Stderr)))
			j.NotApplicable("PL-STA-02", "STATUS does not fail")
		default:
			j.Fail(Verdict{Row: "PL-STA-03", Severity: report.Medium, Title: "STATUS does not notice a full pool",
				Expected: "code 50, or a warning on standard error", Actual: describe(r),
				Hint: "the next ADD would fail, because no address is free"})
		}
		if j.Requires("del") {
			j.Succeeded("free", Verdict{Row: "PL-STA-01", Severity: report.High,
				Title: "STATUS fails after the last container has ended"})
		}
	},
}

// statusDaemonCase calls STATUS while the daemon that the plugin needs does not run. If ADD works
// nevertheless, the daemon is not needed yet.
var statusDaemonCase = &Case{
	Name: "status-daemon", Oldest: cni.V110, Once: true, Rows: []string{"PL-STA-02", "PL-STA-03"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if s.Config.Daemon == "" {
			return nil, `the configuration of the judge has no daemon (key "daemon")`
		}
		s.alone = true
		return s.Scenario(1, quiet(s.Call("alone", cni.Status, 0)), quiet(s.Call("add", cni.Add, 1))), ""
	},
	Judge: func(j *Judgment) {
		j.Claim("alone")
		if !j.failed("add") {
			j.NotApplicable("PL-STA-02", "ADD succeeds without the daemon")
			j.NotApplicable("PL-STA-03", "ADD succeeds without the daemon")
			return
		}
		r, _ := j.Call("alone")
		if j.Expect(j.failed("alone"), Verdict{Row: "PL-STA-03", Severity: report.Medium,
			Title:    "STATUS succeeds although the daemon does not run",
			Expected: "exit status 1 with code 50, because ADD fails", Actual: describe(r),
			Hint: "connect to the daemon in STATUS"}) {
			j.unavailable("alone", "STATUS without the daemon fails with another code than 50")
		} else {
			j.NotApplicable("PL-STA-02", "STATUS does not fail")
		}
	},
}
