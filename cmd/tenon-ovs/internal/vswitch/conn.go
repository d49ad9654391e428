package vswitch

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/cenkalti/rpc2"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
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
	endpoint string
	limit    time.Duration // of each call of retry
	client   client.Client // nil: not connected
}

// connect connects to the database, and reads its schema.
func (c *conn) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	tables, err := model.NewClientDBModel(database, nil)
	if err != nil {
		return err
	}
	fresh, err := client.NewOVSDBClient(tables, client.WithEndpoint(endpointURL(c.endpoint)))
	if err != nil {
		return fmt.Errorf("database %s: %w", c.endpoint, err)
	}
	if err := fresh.Connect(ctx); err != nil {
		fresh.Close()
		return fmt.Errorf("%w: %w", ovs.ErrUnreachable, err)
	}
	c.client = fresh
	return nil
}

// dial is connect until it succeeds or the patience is over.
func (c *conn) dial(ctx context.Context, patience time.Duration) error {
	end := time.Now().Add(patience)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := c.connect(ctx)
		if err == nil || ctx.Err() != nil || time.Until(end) < pause {
			return err
		}
		wait(ctx, pause)
	}
}

// hasProtected reports whether the schema has protected ports, which Open vSwitch has since 2.12.
func (c *conn) hasProtected() bool {
	table, ok := c.client.Schema().Tables["Port"]
	return ok && table.Columns["protected"] != nil
}

// endpointURL returns an endpoint in the form of the library, which parses it as a URL.
func endpointURL(endpoint string) string {
	if path, ok := strings.CutPrefix(endpoint, "unix:"); ok {
		return (&url.URL{Scheme: "unix", Path: path}).String()
	}
	return endpoint
}

// Close closes the connection.
func (c *conn) Close() {
	if c.client != nil {
		c.client.Close()
		c.client = nil
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
			c.Close()
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
	if c.client == nil {
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
func (c *conn) transact(ctx context.Context, guards int, ops ...ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	results, err := c.client.Transact(ctx, ops...)
	if err != nil {
		if errors.As(err, new(rpc2.ServerError)) { // the server does not understand the request
			return nil, fmt.Errorf("database: %w", err)
		}
		return nil, fmt.Errorf("%w: %w", ovs.ErrUnreachable, err)
	}
	for i, r := range results {
		switch {
		case r.Error == "":
		case i < guards:
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
