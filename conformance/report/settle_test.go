package report_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/conformance/report"
)

// TestProfiles checks which findings each profile counts, and the exit status.
func TestProfiles(t *testing.T) {
	t.Parallel()
	for profile, want := range map[report.Profile]string{
		// PL-DEL-02 is a MUST, PL-CHK-04 and PL-GC-01 are not; PL-GC-01 is waived.
		report.Spec10: "PL-DEL-02; veth fail, odd incomplete, good incomplete; status 1",
		report.Spec11: "PL-DEL-02; veth fail, odd incomplete, good pass; status 1",
		report.DropIn: "PL-DEL-02; veth fail, odd incomplete, good pass; status 1",
		report.Strict: "PL-CHK-04 PL-DEL-02 PL-GC-01; veth fail, odd incomplete, good pass; status 1",
	} {
		r := settled(t, profile)
		var counted, verdicts []string
		for _, s := range r.Subjects {
			verdicts = append(verdicts, strings.Split(s.Name, "\x1b")[0]+" "+string(s.Summary.Verdict))
			for _, f := range s.Findings {
				if f.Counts {
					counted = append(counted, f.Row)
				}
			}
		}
		got := fmt.Sprintf("%s; %s; status %d", strings.Join(counted, " "), strings.Join(verdicts, ", "), r.Status())
		if got != want {
			t.Errorf("%s: got %s\nwant %s", profile, got, want)
		}
	}
}

// TestVersionOfProfile checks that a profile of one version does not count a failure in another one,
// except if the scenario ran in no other version.
func TestVersionOfProfile(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		versions []string
		counts   bool
	}{
		"the failure is in another version":              {[]string{"1.0.0", "1.1.0"}, false},
		"the scenario does not depend on the version":    {[]string{"1.1.0"}, true},
		"the failure is in the version, as the only one": {[]string{"1.0.0"}, true},
	} {
		r := example()
		s := &r.Subjects[0]
		check := s.Checks[2] // PL-DEL-02
		s.Checks = nil
		for _, v := range row.versions {
			c := check
			c.Version = v
			if v == "1.0.0" && len(row.versions) > 1 {
				c.Outcome, c.Finding = report.Pass, ""
			}
			s.Checks = append(s.Checks, c)
		}
		if err := r.Settle(report.Spec10, nil); err != nil {
			t.Fatal(err)
		}
		if got := s.Findings[1].Counts; got != row.counts {
			t.Errorf("%s: counts is %v", name, got)
		}
	}
}

// TestStatus checks the exit statuses other than 1.
func TestStatus(t *testing.T) {
	t.Parallel()
	only := func(name string) *report.Report {
		r := example()
		for _, s := range r.Subjects {
			if strings.HasPrefix(s.Name, name) {
				r.Subjects = []report.Subject{s}
			}
		}
		return r
	}
	unused := []report.Waiver{{Row: "PL-ADD-04", Subject: "good", Reason: "none"}}
	for name, row := range map[string]struct {
		r       *report.Report
		waivers []report.Waiver
		want    int
	}{
		"all passes":                    {only("good"), nil, report.StatusPass},
		"a waiver matches nothing":      {only("good"), unused, report.StatusUsage},
		"a required check was not made": {only("odd"), nil, report.StatusIncomplete},
		"no subject":                    {&report.Report{}, nil, report.StatusIncomplete},
	} {
		if err := row.r.Settle(report.Strict, row.waivers); err != nil {
			t.Fatal(err)
		}
		if got := row.r.Status(); got != row.want {
			t.Errorf("%s: status %d, want %d", name, got, row.want)
		}
	}
}

// TestWaivers checks which waivers are wrong.
func TestWaivers(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		waiver  report.Waiver
		problem string // "" if it is right
		waived  bool
		unused  string // a remark
	}{
		"every scenario":  {report.Waiver{Row: "PL-DEL-02", Subject: "veth", Scenario: "*"}, "", true, ""},
		"the scenario":    {report.Waiver{Row: "PL-DEL-02", Subject: "veth", Scenario: "life"}, "", true, ""},
		"on its last day": {report.Waiver{Row: "PL-DEL-02", Subject: "veth", Until: "2026-11-24"}, "", true, ""},
		"after it": {report.Waiver{Row: "PL-DEL-02", Subject: "veth", Until: "2026-11-23"},
			"expired on 2026-11-23", false, ""},
		"no finding": {report.Waiver{Row: "PL-ADD-04", Subject: "veth"}, "matches no finding", false, ""},
		"another scenario": {report.Waiver{Row: "PL-DEL-02", Subject: "veth", Scenario: "other"}, "", false,
			"is not used: the row was not judged in the scenario other"},
		"another plugin": {report.Waiver{Row: "PL-DEL-02", Subject: "other"}, "", false,
			"waiver for PL-DEL-02 of other is not used: other was not judged"},
		"another row": {report.Waiver{Row: "PL-DEL-01", Subject: "veth"}, "", false,
			"waiver for PL-DEL-01 of veth is not used: the row was not judged"},
		"check that does not apply": {report.Waiver{Row: "PL-STA-01", Subject: "veth"}, "", false,
			"is not used: the row was not judged"},
		"skipped check": {report.Waiver{Row: "PL-ADD-04", Subject: example().Subjects[1].Name}, "", false,
			"is not used: the row was not judged"},
		"critical finding, every scenario": {report.Waiver{Row: "PL-CHK-04", Subject: "veth"},
			"must name the scenario", false, ""},
		"critical finding, the scenario": {report.Waiver{Row: "PL-CHK-04", Subject: "veth", Scenario: "life"},
			"", true, ""},
	} {
		r := example()
		r.Subjects[0].Findings[0].Severity = report.Critical // PL-CHK-04
		if err := r.Settle(report.Strict, []report.Waiver{row.waiver}); err != nil {
			t.Fatal(err)
		}
		problems := strings.Join(r.Problems, "\n")
		if (problems == "") != (row.problem == "") || !strings.Contains(problems, row.problem) {
			t.Errorf("%s: problems %q, want %q", name, problems, row.problem)
		}
		if got := r.Summary.Waived > 0; got != row.waived {
			t.Errorf("%s: waived is %v", name, got)
		}
		unwrapped := strings.Join(strings.Fields(text(t, r, report.TextOptions{})), " ")
		if (len(r.Unused) > 0) != (row.unused != "") || !strings.Contains(unwrapped, row.unused) {
			t.Errorf("%s: unused are %v, want %q", name, r.Unused, row.unused)
		}
	}
}

// TestWaiverOfError checks that a waiver does not hide that the judge could not finish.
func TestWaiverOfError(t *testing.T) {
	t.Parallel()
	r := example()
	r.Subjects = r.Subjects[1:2]
	if err := r.Settle(report.Strict, []report.Waiver{{Row: "PL-DEL-02", Subject: r.Subjects[0].Name, Reason: "no"}}); err != nil {
		t.Fatal(err)
	}
	if r.Summary.Errors != 1 || r.Status() != report.StatusIncomplete {
		t.Errorf("%+v", r.Summary)
	}
}

func TestReadWaivers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "waivers.json")
	read := func(text string) ([]report.Waiver, error) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return report.ReadWaivers(path)
	}
	got, err := read(`{"waivers": [{"row": "PL-GC-01", "subject": "veth", "scenario": "*", "reason": "example#7", "until": "2027-03-01"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []report.Waiver{{Row: "PL-GC-01", Subject: "veth", Scenario: "*", Reason: "example#7", Until: "2027-03-01"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, text := range map[string]string{
		"no reason":   `{"waivers": [{"row": "PL-GC-01", "subject": "veth"}]}`,
		"unknown row": `{"waivers": [{"row": "NONE-1", "subject": "veth", "reason": "x"}]}`,
		"unknown key": `{"waivers": [{"row": "PL-GC-01", "subject": "veth", "reason": "x", "role": "y"}]}`,
		"no date":     `{"waivers": [{"row": "PL-GC-01", "subject": "veth", "reason": "x", "until": "soon"}]}`,
	} {
		if got, err := read(text); err == nil {
			t.Errorf("%s: read as %v", name, got)
		}
	}
}
