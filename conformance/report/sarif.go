package report

import (
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/conformance"
)

// Parts of SARIF 2.1.0 (OASIS Standard, section 3), in the form that its schema prescribes.
type (
	sarifLog struct {
		Version string     `json:"version"`
		Schema  string     `json:"$schema"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		Invocations []sarifInvocation `json:"invocations"`
		Results     []sarifResult     `json:"results"`
		Properties  sarifProperties   `json:"properties"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version,omitzero"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
		Help             sarifText `json:"help"`
		HelpURI          string    `json:"helpUri"`
		Default          struct {
			Level string `json:"level"`
		} `json:"defaultConfiguration"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifInvocation struct {
		Successful    bool                `json:"executionSuccessful"`
		ExitCode      int                 `json:"exitCode"`
		Started       string              `json:"startTimeUtc"`
		Notifications []sarifNotification `json:"toolExecutionNotifications,omitzero"`
	}
	sarifNotification struct {
		Level   string    `json:"level"`
		Message sarifText `json:"message"`
	}
	sarifResult struct {
		RuleID       string             `json:"ruleId"`
		RuleIndex    int                `json:"ruleIndex"`
		Level        string             `json:"level"`
		Message      sarifText          `json:"message"`
		Locations    []sarifLocation    `json:"locations"`
		Fingerprints map[string]string  `json:"partialFingerprints"`
		Suppressions []sarifSuppression `json:"suppressions,omitzero"`
		Properties   map[string]string  `json:"properties"`
	}
	sarifLocation struct {
		Physical struct {
			Artifact struct {
				URI string `json:"uri"`
			} `json:"artifactLocation"`
			Region struct {
				StartLine int `json:"startLine"`
			} `json:"region"`
		} `json:"physicalLocation"`
	}
	sarifSuppression struct {
		Kind          string `json:"kind"`
		Justification string `json:"justification"`
	}
	sarifProperties struct {
		Profile Profile `json:"profile"`
		Catalog string  `json:"catalog"`
		Kernel  string  `json:"kernel"`
		Summary Summary `json:"summary"`
	}
)

const (
	specification = "https://www.cni.dev/docs/spec/" // the rules
	sarifSchema   = "https://json.schemastore.org/sarif-2.1.0.json"
)

// SARIF writes the findings in the Static Analysis Results Interchange Format 2.1.0. The level of a
// result is error for MUST and MUST NOT, warning for other rows that the profile counts, and note
// for rows that it does not count. Waivers are suppressions. Each result has the plugin's name as
// its location, and a fingerprint that is the same in each run. Notifications of the invocation
// name the checks that were not made.
func SARIF(w io.Writer, r *Report) error {
	r = cleaned(r)
	run := sarifRun{Results: []sarifResult{}, Invocations: []sarifInvocation{r.invocation()}}
	run.Properties = sarifProperties{r.Profile, r.Catalog, r.Kernel, r.Summary}
	driver := &run.Tool.Driver
	*driver = sarifDriver{Name: "tenon conform", Version: r.Judge, InformationURI: specification,
		Rules: []sarifRule{}}
	for i := range r.Subjects {
		s := &r.Subjects[i]
		for j := range s.Findings {
			f := &s.Findings[j]
			index := slices.IndexFunc(driver.Rules, func(k sarifRule) bool { return k.ID == f.Row })
			if index < 0 {
				index = len(driver.Rules)
				driver.Rules = append(driver.Rules, s.sarifRule(f))
			}
			run.Results = append(run.Results, f.sarif(index))
		}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(sarifLog{"2.1.0", sarifSchema, []sarifRun{run}})
}

// invocation describes the run, and what it did not judge.
func (r *Report) invocation() sarifInvocation {
	out := sarifInvocation{Successful: r.Summary.Errors == 0, ExitCode: r.Status(),
		Started: r.Started.UTC().Format("2006-01-02T15:04:05Z")}
	add := func(level, text string) {
		out.Notifications = append(out.Notifications, sarifNotification{level, sarifText{text}})
	}
	for _, text := range r.notes() {
		level := "note"
		if slices.Contains(r.Problems, text) {
			level = "error"
		}
		add(level, text)
	}
	for i := range r.Subjects {
		for _, text := range r.Subjects[i].open(r.Profile) {
			add("warning", text)
		}
	}
	return out
}

// sarifRule describes the row of a finding.
func (s *Subject) sarifRule(f *Finding) sarifRule {
	rule := sarifRule{ID: f.Row, ShortDescription: sarifText{f.Rule}, HelpURI: specification,
		Help: sarifText{f.Rule + "\n" + f.Section}}
	rule.Default.Level = sarifLevel(f)
	i := slices.IndexFunc(s.Checks, func(c Check) bool { return c.Row == f.Row && c.Title != "" })
	if i >= 0 {
		rule.ShortDescription.Text = s.Checks[i].Title
	}
	return rule
}

// sarifLevel returns how binding the row of a finding is.
func sarifLevel(f *Finding) string {
	if f.Level == conformance.LevelMust || f.Level == conformance.LevelMustNot {
		return "error"
	}
	return "warning"
}

// sarif returns a finding as a result for the rule with an index.
func (f *Finding) sarif(rule int) sarifResult {
	fingerprint := strings.Join([]string{f.Row, f.Subject, f.Scenario}, "/")
	out := sarifResult{
		RuleID: f.Row, RuleIndex: rule, Level: sarifLevel(f), Message: sarifText{f.Title},
		Locations:    make([]sarifLocation, 1),
		Fingerprints: map[string]string{"conform/v1": fingerprint},
		Properties:   map[string]string{"id": f.ID, "severity": string(f.Severity)},
	}
	if !f.Counts {
		out.Level = "note"
	}
	for _, d := range f.details() {
		out.Message.Text += "\n" + d.name + ": " + d.text
	}
	place := &out.Locations[0].Physical
	place.Artifact.URI = (&url.URL{Path: f.Subject}).String()
	place.Region.StartLine = 1
	if f.Waived != nil {
		out.Suppressions = []sarifSuppression{{"external", f.Waived.Reason}}
	}
	return out
}
