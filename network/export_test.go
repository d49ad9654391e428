package network

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/network/config"
)

// HoldLock locks a file in another process, reports it on standard output, and keeps the lock until
// standard input ends. It returns false if the arguments do not request this.
func HoldLock(args []string) bool {
	if len(args) != 3 || args[1] != "hold-lock" {
		return false
	}
	l, err := statefile.TakeLock(context.Background(), args[2], statefile.Exclusive)
	if err != nil {
		panic(err)
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin)
	l.Release()
	return true
}

// LockShared and LockExclusive call statefile.TakeLock.
func LockShared(ctx context.Context, path string) (release func(), err error) {
	l, err := statefile.TakeLock(ctx, path, statefile.Shared)
	return l.Release, err
}

func LockExclusive(ctx context.Context, path string) (release func(), err error) {
	l, err := statefile.TakeLock(ctx, path, statefile.Exclusive)
	return l.Release, err
}

// SetRoot sets the prefix of the fixed paths of a host.
func (c *Client) SetRoot(dir string) { c.root = dir }

// PublicRecord converts a record to its public form.
var PublicRecord = publicRecord

// PutAdding records an ADD that was interrupted before the first plugin answered.
func (c *Client) PutAdding(n *config.Network, r Request) error {
	return c.store().Begin(c.newRecord(n, r.Attachment(n.Name), r.Parameters))
}

// NetworkLock returns the path of the lock of a network.
func (c *Client) NetworkLock(name string) string { return c.networkLockPath(cni.NetworkOwner(name)) }

// ContainerLock returns the path of the lock of a container.
func (c *Client) ContainerLock(id string) string { return c.containerLockPath(records.Hash(id)) }

// PutDue records that DEL is due for records.
func (c *Client) PutDue(container string, s State, recorded []*Record) error {
	var due []*records.Record
	for _, r := range recorded {
		due = append(due, &records.Record{Attachment: r.Attachment, Created: r.Created})
	}
	return c.store().PutDue(records.NewDue(container, records.State(s), due))
}

// DuePath returns the path of the file about unfinished operations of a container.
func (c *Client) DuePath(container string) string {
	return filepath.Join(c.stateDir(), "due", records.Hash(container))
}

// Observe reports the start and the end of an operation.
func (c *Client) Observe(ctx context.Context, a cni.Attachment) {
	_, end := c.observe(ctx, Operation, cni.Add, a)
	end(nil, nil)
}
