// Package archtest enforces rules of the code base: which packages may import which, which may
// access the kernel or the process, which identifiers are public, and which modules the binaries
// link. It contains only tests. The files in testdata violate each rule, so that a rule that no
// longer finds violations fails its test.
package archtest
