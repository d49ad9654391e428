// Package script describes what the judge does with a subject: a scenario of commands and calls, and
// the recording of a run. Both are data. A recording holds everything that the checks of the judge
// look at, so that tests can judge one that was made by hand, and a scenario can be printed as a shell
// script that reproduces a finding without Tenon.
package script
