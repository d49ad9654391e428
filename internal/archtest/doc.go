// Package archtest holds the rules of the code base that a machine can check: which way imports run, who may touch
// the kernel or the process, what the public API is and which modules the executables link. It contains only tests;
// the snippets in testdata break each rule once, so that a rule which stopped finding anything is noticed.
package archtest
