// Package nft keeps the nftables ruleset of one network namespace: the tables inet tenon and bridge tenon. A table has a fixed
// skeleton, made once, and elements in its sets that carry their owner as comment. Each change is one transaction, made under
// the lock of the namespace. Of the tables of others it can remove rules and chains ([Conn.Prune]); it knows nothing of what
// they mean.
package nft

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// ErrNoNFT says that the kernel lacks nftables, or a part of it that the ruleset needs.
var ErrNoNFT = errors.New("kernel lacks nftables support")

// Conn is one nfnetlink socket, bound to a namespace. Closing it after something was deleted waits for the kernel to
// finish the deletion, about 15 ms.
type Conn struct {
	ns       *netns.NS
	messages *nftmsg.Conn
}

// Open opens a socket in ns, which must stay open as long as the connection. The error wraps [ErrNoNFT] if there is no
// nfnetlink.
func Open(ns *netns.NS) (*Conn, error) {
	messages, err := nftmsg.Open(ns)
	if err != nil {
		return nil, fmt.Errorf("nfnetlink: %w", explain(err, lackingSocket))
	}
	return &Conn{ns: ns, messages: messages}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.messages.Close() }

// Available returns nil if the kernel has nftables, else an error that wraps [ErrNoNFT]. It changes nothing.
func (c *Conn) Available() error {
	_, err := c.messages.HasTable(table)
	return explain(err, lackingQuestion)
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

// What a kernel without nftables, or without a part of it, answers.
var (
	// Without nfnetlink there is no such socket. A filter of system calls forbids one; the kernel itself does not.
	lackingSocket = []syscall.Errno{unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EPERM, unix.EACCES}
	// Without nf_tables in nfnetlink there is no such question.
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
