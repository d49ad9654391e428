// Package plugins judges plugins: it probes a binary for its versions and roles, builds the scenarios
// of the judge for it, and derives the verdicts from their recordings.
//
// A [Case] is a scenario with its checks. Cases are data in tables, one file for each area. A check
// names a row of the catalog in package conformance, and looks only at the recording.
package plugins
