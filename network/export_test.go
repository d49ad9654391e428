package network

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/lockfile"
	"github.com/tenon-cni/tenon/network/config"
)

// HoldLock is another process that locks a file, says so, and keeps the lock until standard input ends.
// It reports whether the arguments ask for that.
func HoldLock(args []string) bool {
	if len(args) != 3 || args[1] != "hold-lock" {
		return false
	}
	l, err := lockfile.Take(context.Background(), args[2], lockfile.Exclusive)
	if err != nil {
		panic(err)
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin)
	l.Release()
	return true
}

// LockShared and LockExclusive are lockfile.Take for tests.
func LockShared(ctx context.Context, path string) (release func(), err error) {
	l, err := lockfile.Take(ctx, path, lockfile.Shared)
	return l.Release, err
}

func LockExclusive(ctx context.Context, path string) (release func(), err error) {
	l, err := lockfile.Take(ctx, path, lockfile.Exclusive)
	return l.Release, err
}

// SetRoot puts a directory in front of the paths that are fixed for a host.
func (c *Client) SetRoot(dir string) { c.root = dir }

// PutAdding records an ADD that was interrupted before the first plugin had answered.
func (c *Client) PutAdding(n *config.Network, r Request) error {
	return c.store().begin(c.newRecord(n, r.Attachment(n.Name), r.Parameters))
}

// NetworkLock is the path of the lock of a network.
func (c *Client) NetworkLock(name string) string { return c.lockPath("network", name) }

// ContainerLock is the path of the lock of a container.
func (c *Client) ContainerLock(id string) string { return c.lockPath("container", id) }

// Decode and encode a record for tests.
var DecodeRecord = decodeRecord

func (r *Record) Encode() ([]byte, error) { return r.encode() }

// DecodeVersions returns what a file of answers to VERSION says, by path of the executable.
func DecodeVersions(b []byte) (map[string][]string, error) {
	entries, err := decodeVersions(b)
	versions := map[string][]string{}
	for path, e := range entries {
		versions[path] = e.Versions
	}
	return versions, err
}

// EncodeVersions writes the file anew.
func EncodeVersions(b []byte) []byte {
	entries, err := decodeVersions(b)
	if err != nil {
		panic(err)
	}
	out, err := json.Marshal(wireVersions{versionsKind, entries})
	if err != nil {
		panic(err)
	}
	return out
}

// Seal is what is around the body of a record.
func Seal(body []byte) []byte { return seal(recordKind, body) }

// Unseal returns the body.
// Unseal returns what Seal was given.
func Unseal(b []byte) ([]byte, error) { return unseal(recordKind, b) }

// DecodeCached reads a file of the reference library.
var DecodeCached = decodeCached

// PutDue makes records due.
func (c *Client) PutDue(container string, s State, records []*Record) error {
	return c.store().putDue(newDue(container, s, records))
}

// DuePath is the file about what is due of a container.
func (c *Client) DuePath(container string) string { return c.store().duePath(container) }

// ReencodeDue decodes what is due, and encodes it again.
func ReencodeDue(b []byte) ([]byte, error) {
	d, err := decodeDue(b)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(d)
	return seal(dueKind, body), err
}

// SealDue is what is around the body.
func SealDue(body []byte) []byte { return seal(dueKind, body) }

// Observe is the begin and the end of an operation.
func (c *Client) Observe(ctx context.Context, a cni.Attachment) {
	_, end := c.observe(ctx, Operation, cni.Add, a)
	end(nil, nil)
}
