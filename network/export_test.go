package network

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// HoldLock is another process that locks a file, says so, and keeps the lock until standard input ends.
// It reports whether the arguments ask for that.
func HoldLock(args []string) bool {
	if len(args) != 3 || args[1] != "hold-lock" {
		return false
	}
	l, err := lockPath(context.Background(), args[2], unix.F_WRLCK)
	if err != nil {
		panic(err)
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin)
	l.release()
	return true
}

// LockShared and LockExclusive are lockPath for tests.
func LockShared(ctx context.Context, path string) (release func(), err error) {
	l, err := lockPath(ctx, path, unix.F_RDLCK)
	return l.release, err
}

func LockExclusive(ctx context.Context, path string) (release func(), err error) {
	l, err := lockPath(ctx, path, unix.F_WRLCK)
	return l.release, err
}

// NetworkLock is the path of the lock of a network.
func (c *Client) NetworkLock(name string) string { return c.lockPath("network", name) }

// Decode and encode a record for tests.
var DecodeRecord = decodeRecord

func (r *Record) Encode() ([]byte, error) { return r.encode() }
