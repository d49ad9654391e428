package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/trace"
)

// undoBudget limits how long undoing one change may wait, for a lock for example. It is independent
// of the transaction's context, because a done context can be the reason for the rollback.
const undoBudget = 10 * time.Second

// Tx is a sequence of changes that can be rolled back. It is for one goroutine.
type Tx struct {
	ctx   context.Context       // bounds the transaction, as it does in database/sql
	watch func(op string) error // see Watch; may be nil
	batch *Batch                // collects the requests of [Rules.Apply], or nil
	peers string                // see SetPeers
	span  *trace.Span           // of the call that makes the changes; nil unless it is traced
	done  []change
}

type change struct {
	op   string
	undo func() error
}

// Begin starts a transaction. It makes no change once ctx is done. It records its changes as steps
// of the span of ctx.
func Begin(ctx context.Context) *Tx { return &Tx{ctx: ctx, span: trace.From(ctx)} }

// Watch makes tx call watch before each change, with the description of the change. If watch
// returns an error, tx does not make the change and [Tx.Do] returns the error. A nil function is
// not called.
func (tx *Tx) Watch(watch func(op string) error) { tx.watch = watch }

// SetPeers names the prefix of the tags of the network for which tx makes changes. An owner replaces
// other owners of its addresses that have this prefix, and shares its addresses with all others: an
// address is unique within a network. Without a prefix an owner replaces all others.
func (tx *Tx) SetPeers(prefix string) { tx.peers = prefix }

// CollectInto makes [Rules.Apply] append to b instead of changing the kernel, for
// [Rules.ApplyBatches] to apply together with other requests. Rollback does not affect b.
func (tx *Tx) CollectInto(b *Batch) { tx.batch = b }

// Do makes a change by calling apply. op names the change and its object, for the trace and for the
// error, which is "op: cause". undo reverts the change; nil means that the undo of an earlier
// change reverts this one, or that the change is permanent. If apply fails, it must leave nothing
// to undo.
func (tx *Tx) Do(op string, apply, undo func() error) error {
	if err := tx.attempt(op, apply); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if undo != nil {
		tx.done = append(tx.done, change{op, undo})
	}
	return nil
}

// set is Do for a change with an undo that is harmless if the change was not made. If apply fails
// for lack of resources, set calls undo at once: the kernel may have made the change without being
// able to report it.
func (tx *Tx) set(op string, apply, undo func() error) error {
	return tx.Do(op, func() error {
		err := apply()
		if Exhausted(err) && undo != nil {
			err = errors.Join(err, undo())
		}
		return err
	}, undo)
}

// change is Do for a change that may already be in place. apply reports whether it changed
// anything; if not, there is nothing to undo.
func (tx *Tx) change(op string, apply func() (changed bool, err error), undo func() error) error {
	return ifChanged(tx.Do, op, apply, undo)
}

// setChange is change for an undo that is harmless if the change was not made, as set is Do.
func (tx *Tx) setChange(op string, apply func() (changed bool, err error), undo func() error) error {
	return ifChanged(tx.set, op, func() (bool, error) {
		changed, err := apply()
		return changed || Exhausted(err), err
	}, undo)
}

func ifChanged(
	do func(op string, apply, undo func() error) error,
	op string, apply func() (changed bool, err error), undo func() error,
) error {
	changed := false
	return do(op, func() (err error) {
		changed, err = apply()
		return err
	}, func() error {
		if !changed {
			return nil
		}
		return undo()
	})
}

// errorOf drops the first result of a call.
func errorOf[T any](_ T, err error) error { return err }

func (tx *Tx) attempt(op string, apply func() error) error {
	if tx.ctx.Err() != nil {
		return context.Cause(tx.ctx)
	}
	if tx.watch != nil {
		if err := tx.watch(op); err != nil {
			return err
		}
	}
	if tx.span == nil {
		return apply()
	}
	return tx.step(trace.Change, op, apply)
}

// step makes a change or reverts it, and records it as a span.
func (tx *Tx) step(kind trace.Kind, name string, f func() error) error {
	step := tx.span.Enter(kind, name)
	err := f()
	step.End(err)
	return err
}

// Rollback reverts all changes, newest first. It continues past errors and returns them joined.
// Afterwards the transaction is empty and can be used again. Rollback works even if the context of
// the transaction is done.
func (tx *Tx) Rollback() error {
	var errs []error
	for len(tx.done) > 0 {
		last := tx.done[len(tx.done)-1]
		tx.done = tx.done[:len(tx.done)-1]
		if err := tx.revert(last); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", last.op, err))
		}
	}
	return errors.Join(errs...)
}

func (tx *Tx) revert(c change) error {
	if tx.span == nil {
		return c.undo()
	}
	return tx.step(trace.Undo, "undo "+c.op, c.undo)
}

// Keep makes all changes so far permanent.
func (tx *Tx) Keep() { tx.done = nil }

// undoContext returns the context for undoing a change.
func (tx *Tx) undoContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(tx.ctx), undoBudget)
}

// Exhausted reports whether err means a lack of memory, open files or the like, so that the next
// attempt can succeed. After any other error it would fail again.
func Exhausted(err error) bool {
	for _, errno := range []unix.Errno{unix.ENOMEM, unix.ENOBUFS, unix.EAGAIN, unix.EINTR, unix.EMFILE, unix.ENFILE} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
