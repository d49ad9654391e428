// Package trial runs the scenarios of the judge and turns the verdicts about their recordings into a
// report. It does not know what a plugin is: package plugins builds the trials for a subject.
package trial
