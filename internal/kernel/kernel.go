// Package kernel changes the network state of the kernel and can undo each change. A [Tx] is a
// sequence of changes in one or several namespaces; a [Space] is one namespace in a transaction.
// The package knows links, addresses, routes, settings and rules, but not their purpose.
package kernel
