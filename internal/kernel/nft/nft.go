// Package nft keeps the nftables ruleset of one network namespace: the tables inet tenon and bridge tenon. It is the only
// package that imports the nftables library. A table has a fixed skeleton, made once, and elements in its sets that carry
// their owner as comment. Each change is one transaction, made under the lock of the namespace. Of the tables of others it
// can remove rules and chains ([Conn.Prune]); it knows nothing of what they mean.
package nft

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel/netns"
	"github.com/tenon-cni/tenon/internal/kernel/nlmsg"
)

// ErrNoNFT says that the kernel lacks nftables, or a part of it that the ruleset needs.
var ErrNoNFT = errors.New("kernel lacks nftables support")

// Conn is one nfnetlink socket, bound to a namespace. Closing it after something was deleted waits for the kernel to
// finish the deletion, about 15 ms.
type Conn struct {
	ns *netns.NS
	c  *nftables.Conn

	// For questions of our own on the same socket, see [Conn.ask].
	socket   syscall.RawConn
	exchange nlmsg.Exchange
}

// maxDescriptor is the highest file descriptor that the library can wait for: it uses select(2).
const maxDescriptor = unix.FD_SETSIZE - 1

// Open opens a socket in ns, which must stay open as long as the connection. The error wraps [ErrNoNFT] if there is no
// nfnetlink. A process that has more than about 1000 files open cannot have one.
func Open(ns *netns.NS) (*Conn, error) {
	next, err := unix.FcntlInt(uintptr(ns.Fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("nfnetlink socket in %s: %w", ns, err)
	}
	unix.Close(next)
	if next > maxDescriptor {
		return nil, fmt.Errorf("nfnetlink socket in %s: %w: descriptor %d is beyond %d", ns, unix.EMFILE, next, maxDescriptor)
	}
	c := &Conn{ns: ns}
	c.c, err = nftables.New(nftables.AsLasting(), nftables.WithNetNSFd(ns.Fd()), nftables.WithSockOptions(c.prepare))
	if err != nil {
		return nil, fmt.Errorf("nfnetlink socket in %s: %w", ns, explain(err, lackingQuestion))
	}
	return c, nil
}

// maxBatch is how many bytes the largest transaction can have, and the answers to it: the memory is used when they do.
const maxBatch = 64 << 20

func (c *Conn) prepare(socket *netlink.Conn) (err error) {
	if c.socket, err = socket.SyscallConn(); err != nil {
		return err
	}
	return errors.Join(socket.SetWriteBuffer(maxBatch), socket.SetReadBuffer(maxBatch))
}

// Close closes the socket.
func (c *Conn) Close() error { return c.c.CloseLasting() }

// Available returns nil if the kernel has nftables, else an error that wraps [ErrNoNFT]. It changes nothing.
func (c *Conn) Available() error {
	if _, err := c.c.ListTableOfFamily(table.Name, table.Family); err != nil && !errors.Is(err, unix.ENOENT) {
		return explain(err, lackingQuestion)
	}
	return nil
}

// locked calls fn holding the lock of the namespace.
func (c *Conn) locked(ctx context.Context, fn func() error) error {
	unlock, err := c.ns.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return fn()
}

// attempts is how often something is tried while others change the ruleset.
const attempts = 5

// tried is locked for what looks first and changes then: others, who know no lock, may flush the ruleset in between. Then
// it is tried again.
func (c *Conn) tried(ctx context.Context, fn func() error) error {
	return c.locked(ctx, func() (err error) {
		for range attempts {
			if err = fn(); !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
		return err
	})
}

// What a kernel without nftables, or without a part of it, answers.
var (
	// Without nfnetlink there is no such socket; without nf_tables in it no such question.
	lackingQuestion = []syscall.Errno{unix.EPROTONOSUPPORT, unix.EINVAL}
	// Without the inet family, the type of chain or an expression it cannot be made.
	lackingBuild = []syscall.Errno{unix.EOPNOTSUPP, unix.EAFNOSUPPORT, unix.ENOENT}
)

// explain wraps err into [ErrNoNFT] if it is one of the answers.
func explain(err error, answers []syscall.Errno) error {
	for _, errno := range answers {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w: %w", ErrNoNFT, err)
		}
	}
	return err
}
