// Package report holds the outcome of a run of the judge as data, and writes it as text,
// Markdown, a page of HTML and a badge for people, and as JSON, JUnit XML and SARIF for programs.
// Subjects choose many of the texts; each format escapes them.
package report

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/tenon-cni/tenon/conformance"
)

// Format is the version of the format of Report.
const Format = 1

// Report is the outcome of a run.
type Report struct {
	Format   int       `json:"format"`
	Judge    string    `json:"judge"`   // version of the program
	Catalog  string    `json:"catalog"` // digest of the catalog of requirements
	Kernel   string    `json:"kernel"`
	User     string    `json:"user"` // root, or the owner of the user namespace in which the judge runs
	Profile  Profile   `json:"profile"`
	Started  time.Time `json:"started"`
	Seconds  float64   `json:"seconds"`
	Subjects []Subject `json:"subjects"`
	// Summary follows from the checks and the profile, see [Report.Settle].
	Summary Summary `json:"summary"`
	// Problems are errors of the waivers: unused, or expired.
	Problems []string `json:"problems,omitzero"`
	// Unused are waivers about subjects, rows or scenarios that were not judged.
	Unused []Waiver `json:"unused,omitzero"`
	// LeftOut lists files that were given but are no plugins, with the reason.
	LeftOut []string `json:"leftOut,omitzero"`
}

// Subject is a plugin and what the judge found about it.
type Subject struct {
	Name     string    `json:"name"`
	Path     string    `json:"path,omitzero"`
	Digest   string    `json:"digest,omitzero"` // SHA-256 of the binary
	Roles    []string  `json:"roles,omitzero"`  // interface, chained, ipam, meta
	Versions []string  `json:"versions,omitzero"`
	Checks   []Check   `json:"checks"`
	Findings []Finding `json:"findings"`
	Seconds  float64   `json:"seconds"`
	// Configs are the configurations that the judge used, in its own format, for a replay.
	Configs []json.RawMessage `json:"configs,omitzero"`
	// Skipped lists what the host of the run lacks.
	Skipped []Skipped `json:"skipped,omitzero"`
	// Note explains why the judge could not judge the subject.
	Note string `json:"note,omitzero"`
	// Summary and Missing follow from the checks and the profile, see [Report.Settle].
	Summary Summary `json:"summary"`
	// Missing explains why it remains open whether the subject satisfies the profile.
	Missing []string `json:"missing,omitzero"`
}

// Skipped is a part of the isolation or of the observation that the host of a run lacks.
type Skipped struct {
	Reason string   `json:"reason"`
	Rows   []string `json:"rows,omitzero"` // of which a violation may remain unseen
}

// Outcome is the outcome of a check.
type Outcome string

// The outcomes.
const (
	Pass          Outcome = "pass"
	Fail          Outcome = "fail"
	Info          Outcome = "info" // the requirement leaves a choice; Reason says which one was taken
	Skip          Outcome = "skip" // this host cannot judge it
	NotApplicable Outcome = "n/a"  // does not concern the role, version or subject
	Error         Outcome = "error"
)

// Severity is the damage that a finding stands for.
type Severity string

// The severities.
const (
	Critical Severity = "critical" // traffic or data of other containers, damage of the host
	High     Severity = "high"     // leaks, or a state that blocks later operations, in normal use
	Medium   Severity = "medium"   // a wrong answer that a peer may act on
	Low      Severity = "low"      // advice, wording, order without effect
)

// Check is one requirement judged for one version and scenario.
type Check struct {
	Row      string            `json:"row"`
	Level    conformance.Level `json:"level"`
	Title    string            `json:"title"`
	Scenario string            `json:"scenario,omitzero"`
	Role     string            `json:"role,omitzero"`
	Version  string            `json:"version,omitzero"` // of the specification; empty if it concerns all
	Outcome  Outcome           `json:"outcome"`
	Reason   string            `json:"reason,omitzero"`  // of an outcome other than pass and fail
	Finding  string            `json:"finding,omitzero"` // ID of the finding of a failed check
	Seconds  float64           `json:"seconds,omitzero"`
	Counts   bool              `json:"counts,omitzero"` // the profile requires it; set by [Report.Settle]
}

// Finding is a violation of a requirement. Violations of several versions are one finding.
type Finding struct {
	ID       string            `json:"id"`
	Row      string            `json:"row"`
	Level    conformance.Level `json:"level"`
	Severity Severity          `json:"severity"`
	Title    string            `json:"title"`
	Subject  string            `json:"subject"`
	Scenario string            `json:"scenario"`
	Role     string            `json:"role,omitzero"`
	Versions []string          `json:"versions,omitzero"`
	// Further are other scenarios that show the same defect.
	Further []string `json:"further,omitzero"`
	// Related are other rows that the defect violates.
	Related  []string `json:"related,omitzero"`
	Rule     string   `json:"rule"`    // the requirement
	Section  string   `json:"section"` // of the specification
	Expected string   `json:"expected"`
	Actual   string   `json:"actual"`
	Hint     string   `json:"hint,omitzero"` // the usual cause, or the fix
	// Disputed explains how libcni or other programs in wide use differ from the requirement too.
	Disputed string `json:"disputed,omitzero"`
	// Replay is a text for a shell that reproduces the finding without Tenon.
	Replay string `json:"replay,omitzero"`
	// Counts reports that the profile requires the row. [Report.Settle] sets it and Waived.
	Counts bool    `json:"counts"`
	Waived *Waiver `json:"waived,omitzero"`
}

// FindingID returns the identifier of a finding. It is the same in each run.
func FindingID(row, subject, scenario string) string {
	sum := sha256.Sum256([]byte(row + "\x00" + subject + "\x00" + scenario))
	return "f-" + hex.EncodeToString(sum[:4])
}
