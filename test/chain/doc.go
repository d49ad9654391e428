// Package chain tests chains of plugins from outside: chained plugins behind interface plugins,
// executed and linked into the process of a runtime, one attachment and many at once. The tests of a
// single plugin are in its package.
package chain
