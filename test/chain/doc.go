// Package chain tests chains of plugins from outside: chained plugins after interface plugins,
// executed and linked into the process of a runtime, for one attachment and for many at once. The
// tests of a single plugin are in its package.
package chain
