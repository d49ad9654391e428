package vswitch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/tenon-cni/tenon/plugins/ovs"
)

const (
	database = "Open_vSwitch"

	firstPause = 20 * time.Millisecond // between attempts to connect again
	lastPause  = time.Second
)

// conn is a connection to the database, which it makes again if it breaks. It is for one goroutine.
type conn struct {
	endpoint  string
	limit     time.Duration // of each call of retry
	rpc       *rpc          // nil: not connected
	protected bool          // the schema has protected ports, which Open vSwitch has since 2.12
}

// connect connects to the database, and reads its schema. The error wraps [ovs.ErrUnreachable] if
// there is no answer.
func (c *conn) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	var err error
	if c.rpc, err = dialRPC(ctx, c.endpoint); err != nil {
		return fmt.Errorf("%w: %w", ovs.ErrUnreachable, err)
	}
	var schema struct {
		Tables map[string]struct{ Columns map[string]json.RawMessage }
	}
	if err := c.call(ctx, "get_schema", []any{database}, &schema); err != nil {
		c.Close()
		return err
	}
	c.protected = schema.Tables["Port"].Columns["protected"] != nil
	return nil
}

// call calls a method of the server. It closes the connection after an error, except for one that
// the server reports; the error wraps [ovs.ErrUnreachable] then.
func (c *conn) call(ctx context.Context, method string, params []any, reply any) error {
	err := c.rpc.call(ctx, method, params, reply)
	if err == nil || errors.As(err, new(*serverError)) {
		return err
	}
	c.Close()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%w: database %s: %w", ovs.ErrUnreachable, c.endpoint, err)
}

// dial is connect until it succeeds or the patience is over.
func (c *conn) dial(ctx context.Context, patience time.Duration) error {
	end := time.Now().Add(patience)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := c.connect(ctx)
		if !errors.Is(err, ovs.ErrUnreachable) || ctx.Err() != nil || time.Until(end) < pause {
			return err
		}
		wait(ctx, pause)
	}
}

// Close closes the connection.
func (c *conn) Close() {
	if c.rpc != nil {
		c.rpc.close()
		c.rpc = nil
	}
}

// errConflict reports that a condition of a transaction did not hold: another program has changed
// the database since it was read.
var errConflict = errors.New("the database has changed")

// retry calls do until it succeeds or fails for good. After a conflict do must read the database
// again; if the connection breaks, retry connects again.
func (c *conn) retry(ctx context.Context, do func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	var last error
	for pause := firstPause; within.Err() == nil; {
		err := c.attempt(within, do)
		switch {
		case errors.Is(err, errConflict): // another call has made progress
			last = err
		case errors.Is(err, ovs.ErrUnreachable):
			last = err
			wait(within, pause)
			pause = min(2*pause, lastPause)
		default:
			return err
		}
	}
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), last)
	}
	return fmt.Errorf("no success within %s: %w", c.limit, last)
}

// attempt connects if necessary, and calls do. The error wraps [ovs.ErrUnreachable] if the
// connection breaks or the server does not answer in time.
func (c *conn) attempt(ctx context.Context, do func(context.Context) error) error {
	if c.rpc == nil {
		if err := c.connect(ctx); err != nil {
			return err
		}
	}
	return do(ctx)
}

// wait waits for some time, or until ctx is done.
func wait(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// transact makes one transaction, and returns the results of its operations. The error wraps
// errConflict if one of the first guards operations, which are waits, does not hold, and
// [ovs.ErrUnreachable] if there is no answer.
func (c *conn) transact(
	ctx context.Context, guards int, ops ...ovsdb.Operation,
) ([]ovsdb.OperationResult, error) {
	var results []ovsdb.OperationResult
	if err := c.call(ctx, "transact", ovsdb.NewTransactArgs(database, ops...), &results); err != nil {
		return nil, err
	}
	for i, r := range results {
		switch {
		case r.Error == "":
		case i < guards && r.Error == timedOut:
			return nil, errConflict
		default:
			return nil, &answerError{kind: r.Error, details: r.Details}
		}
	}
	if len(results) < len(ops) {
		return nil, fmt.Errorf("the database answered %d of %d operations", len(results), len(ops))
	}
	return results, nil
}

// answerError is an error that the server returns for a transaction (RFC 7047, section 3.1).
type answerError struct{ kind, details string }

func (e *answerError) Error() string { return e.kind + ": " + e.details }

// timedOut is the kind for a wait that did not become true in time.
const timedOut = "timed out"
