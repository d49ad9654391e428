package report_test

import (
	"encoding/json"
	"time"

	"github.com/tenon-cni/tenon/conformance"
	"github.com/tenon-cni/tenon/conformance/report"
)

// hostile is a text that a subject could print to attack a reader of the report.
const hostile = "\x1b[31mred\x1b[0m \x00\u202e<script>alert(1)</script> ]]> # `x` | \"quoted\" \xff"

// example returns a report with all outcomes, and texts of hostile subjects.
func example() *report.Report {
	check := func(row string, level conformance.Level, title, version string, o report.Outcome) report.Check {
		return report.Check{Row: row, Level: level, Title: title, Scenario: "life", Role: "interface",
			Version: version, Outcome: o, Seconds: 0.25}
	}
	failed := func(c report.Check, id string) report.Check {
		c.Outcome, c.Finding = report.Fail, id
		return c
	}
	because := func(c report.Check, reason string) report.Check {
		c.Reason = reason
		return c
	}
	finding := func(id, row string, level conformance.Level, severity report.Severity, subject, title string) report.Finding {
		return report.Finding{ID: id, Row: row, Level: level, Severity: severity, Title: title, Subject: subject,
			Scenario: "life", Role: "interface", Versions: []string{"1.0.0", "1.1.0"}, Rule: "The rule of " + row + ".",
			Section: "CNI 1.1.0, section 2: Execution protocol, DEL", Expected: "exit status 0", Actual: "exit status 1",
			Hint: "do it right", Replay: "echo replay\n"}
	}
	must, should := conformance.LevelMust, conformance.LevelShould
	veth := report.Subject{Name: "veth", Path: "/opt/cni/bin/veth", Digest: "abcd",
		Roles: []string{"interface"}, Versions: []string{"1.0.0", "1.1.0"}, Seconds: 1.5,
		Configs: []json.RawMessage{json.RawMessage(`{"role":"interface"}`)},
		Checks: []report.Check{
			check("PL-ADD-04", must, "ADD succeeds", "1.0.0", report.Pass),
			check("PL-ADD-04", must, "ADD succeeds", "1.1.0", report.Pass),
			failed(check("PL-DEL-02", must, "repeated DEL succeeds", "1.0.0", ""), "f-00000001"),
			failed(check("PL-DEL-02", must, "repeated DEL succeeds", "1.1.0", ""), "f-00000001"),
			failed(check("PL-CHK-04", should, "CHECK notices changes", "1.1.0", ""), "f-00000002"),
			failed(check("PL-GC-01", should, "GC removes stale resources", "1.1.0", ""), "f-00000003"),
			because(check("PL-STA-01", must, "STATUS reports readiness", "1.0.0", report.NotApplicable), "STATUS is new in 1.1.0"),
			because(check("CFG-40", conformance.LevelMay, "a choice", "1.1.0", report.Info), "gives up"),
		},
		Findings: []report.Finding{
			finding("f-00000002", "PL-CHK-04", should, report.Medium, "veth", "CHECK notices no change"),
			finding("f-00000001", "PL-DEL-02", must, report.High, "veth", "the second DEL fails"),
			finding("f-00000003", "PL-GC-01", should, report.Low, "veth", "GC keeps a reservation"),
		}}
	veth.Findings[1].Actual = "exit status 1, output " + hostile
	veth.Findings[1].Disputed = "Others do so too."
	veth.Findings[1].Related = []string{"PL-DEL-04"}
	veth.Skipped = []report.Skipped{
		{Reason: "/sys is empty: not permitted", Rows: []string{"PL-DEL-01", "PL-DEL-02", "PL-ADD-01"}},
		{Reason: "no limit for the memory of processes"},
	}
	odd := report.Subject{Name: "odd" + hostile, Versions: []string{"1.1.0"},
		Checks: []report.Check{
			because(check("PL-ADD-04", must, "ADD succeeds", "1.1.0", report.Skip), "the kernel lacks "+hostile),
			because(check("PL-DEL-02", must, "repeated DEL succeeds", "1.1.0", report.Error), "the cell did not start"),
		}}
	good := report.Subject{Name: "good", Versions: []string{"1.1.0"}, Seconds: 0.5,
		Skipped: []report.Skipped{{Reason: "/sys is empty: not permitted", Rows: []string{"PL-ADD-04"}}},
		Checks:  []report.Check{check("PL-ADD-04", must, "ADD succeeds", "1.1.0", report.Pass)}}
	return &report.Report{Format: report.Format, Judge: "1.2.3", Catalog: "cafe", Kernel: "6.1.0", User: "root",
		Started: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), Seconds: 2.5,
		Subjects: []report.Subject{veth, odd, good},
		LeftOut:  []string{"README: not executable"}}
}

// waivers accept one finding; one of them matches nothing.
func waivers() []report.Waiver {
	return []report.Waiver{
		{Row: "PL-GC-01", Subject: "veth", Reason: "example#7", Until: "2027-03-01"},
		{Row: "PL-ADD-04", Subject: "good", Reason: "unused"},
		{Row: "PL-ADD-04", Subject: "bridge", Reason: "example#8"},
	}
}
