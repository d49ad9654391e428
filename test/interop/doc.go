// Package interop has runtimes and plugins that nobody here wrote work with Tenon's: containerd 1.6 through its Container Runtime Interface,
// Podman 4.3 with its CNI backend, the reference plugins under Tenon's library and in its place for the same containers, and
// a plugin that is a shell script. It holds only tests.
//
// It needs root and the Debian packages in scripts/test-deps, and no registry: the one image is made of a static busybox. Each test that has a
// runtime has a node: network, mount and process namespaces of its own with empty folders /run, /var/lib and /opt, where runtimes find
// everything at its usual place. All processes, mounts and control groups of a node end with the test, also if that is killed.
//
// Tests with the build tag clients need the programs that scripts/test-clients builds: containerd 2 and
// kubelet. With these in front, the tests of containerd run under version 2, too.
package interop
