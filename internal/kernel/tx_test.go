package kernel_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
)

func TestDoNamesTheChange(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	err := kernel.Begin(t.Context()).Do("add thing", func() error { return cause }, nil)
	if !errors.Is(err, cause) || err.Error() != "add thing: cause" {
		t.Errorf("got %v", err)
	}
}

func TestRollback(t *testing.T) {
	t.Parallel()
	tx := kernel.Begin(t.Context())
	var undone []string
	failure, other := errors.New("failure"), errors.New("other")
	do := func(op string, applied, result error) error {
		return tx.Do(op, func() error { return applied }, func() error {
			undone = append(undone, op)
			return result
		})
	}
	must(t, do("a", nil, failure))
	must(t, tx.Do("b", func() error { return nil }, nil))
	if do("c", failure, nil) == nil {
		t.Error("Do succeeds although apply fails")
	}
	must(t, do("d", nil, other))
	must(t, do("e", nil, nil))

	err := tx.Rollback()
	if want := []string{"e", "d", "a"}; !slices.Equal(undone, want) {
		t.Errorf("undone %v, want %v", undone, want)
	}
	if !errors.Is(err, failure) || !errors.Is(err, other) || err.Error() != "undo d: other\nundo a: failure" {
		t.Errorf("got error %v", err)
	}
	if err := tx.Rollback(); err != nil || len(undone) != 3 {
		t.Errorf("second rollback: %v, undone %v", err, undone)
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	tx := kernel.Begin(t.Context())
	must(t, tx.Do("a", func() error { return nil }, func() error { return errors.New("undone") }))
	tx.Keep()
	must(t, tx.Rollback())
}

func TestWatch(t *testing.T) {
	t.Parallel()
	var trace []string
	fault := errors.New("fault")
	tx := kernel.Begin(t.Context())
	tx.Watch(func(op string) error {
		trace = append(trace, op)
		if op == "b" {
			return fault
		}
		return nil
	})
	var applied []string
	apply := func(op string) error {
		return tx.Do(op, func() error {
			applied = append(applied, op)
			return nil
		}, func() error { return errors.New(op) })
	}
	must(t, apply("a"))
	if err := apply("b"); !errors.Is(err, fault) || err.Error() != "b: fault" {
		t.Errorf("got %v, want the fault", err)
	}
	if want := []string{"a", "b"}; !slices.Equal(trace, want) {
		t.Errorf("trace %v, want %v", trace, want)
	}
	if want := []string{"a"}; !slices.Equal(applied, want) {
		t.Errorf("applied %v, want %v", applied, want)
	}
	if err := tx.Rollback(); err == nil || err.Error() != "undo a: a" {
		t.Errorf("rollback: %v; the change that was not made must not be undone", err)
	}
}

func TestDoneContextStopsChangesButNotRollback(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	tx := kernel.Begin(ctx)
	undone := false
	must(t, tx.Do("a", func() error { return nil }, func() error { undone = true; return nil }))
	cause := errors.New("terminated")
	cancel(cause)
	err := tx.Do("b", func() error { t.Error("change was made"); return nil }, nil)
	if !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
	if err := tx.Rollback(); err != nil || !undone {
		t.Errorf("rollback: %v, undone %t", err, undone)
	}
}
