// Package interop tests Tenon with software of other projects: containerd 1.6 through its Container
// Runtime Interface, Podman 4.3 with its CNI backend, the upstream plugins (under Tenon's runtime,
// and taking turns with Tenon's plugins for the same containers), earlier versions of Tenon, and
// a plugin that is a shell script. It contains only tests.
//
// The tests need root and the Debian packages in scripts/test-deps, but no registry: they build the
// only image from a static busybox. Each test with a runtime has a node: its own network, mount and
// process namespaces with empty directories /run, /var/lib and /opt, so that runtimes find
// everything in its usual place. All processes, mounts and control groups of a node end with the
// test, even if the test is killed.
//
// Tests with the build tag clients need the programs that scripts/test-clients builds: containerd 2
// and kubelet. If these come first in PATH, the tests of containerd run with version 2.
//
// Tests with the build tag programs need the programs that scripts/test-programs builds on module
// compat/cni and on upstream's library: containerd 2, go-cni, cnitool and the upstream plugins.
package interop
