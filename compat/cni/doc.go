// Package cni is the root of a module with the exported API of
// github.com/containernetworking/cni v1.3.1 on top of Tenon. It declares nothing. A program uses
// the module with one line in its go.mod:
//
//	replace github.com/containernetworking/cni => github.com/tenon-cni/tenon/compat/cni VERSION
//
// Runtimes find libcni and pkg/invoke in the module, plugins pkg/skel, pkg/types and pkg/version.
// testdata/api.txt lists every symbol; the tests of this package compare the module with the list.
package cni
