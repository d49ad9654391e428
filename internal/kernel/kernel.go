// Package kernel changes the network state of the kernel and can undo each change. A [Tx] is a
// sequence of changes in one or several namespaces; a [Space] is one namespace in a transaction. The
// package knows links, addresses, routes, settings and rules, but not their purpose.
package kernel

import "context"

// Hooks watch and disturb the changes of transactions.
type Hooks struct {
	Trace func(op string)       // called before each change
	Fault func(op string) error // called before each change; an error fails it before it is made. For tests only
}

type hooksKey struct{}

// WithHooks returns a context with which [Begin] starts transactions that have hooks, for callers
// that do not begin the transaction themselves. Others call [Tx.Watch].
func WithHooks(ctx context.Context, h Hooks) context.Context {
	return context.WithValue(ctx, hooksKey{}, h)
}
