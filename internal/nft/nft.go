// Package nft maintains rule sets in the tables inet tenon and bridge tenon of one network
// namespace. A rule set has a fixed skeleton and elements with their owner as comment. diff
// compares requested with existing elements, without talking to the kernel; [Conn.Apply] commits
// the difference in one transaction, under the lock of the namespace. Of the tables of other
// programs the package can remove rules and chains ([Conn.Prune]); it does not know their meaning.
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

// ErrNoNFT reports that the kernel lacks nftables, or a part of it that a rule set needs.
var ErrNoNFT = errors.New("kernel lacks nftables support")

// Conn is one nfnetlink socket, bound to a namespace. Closing it after a deletion waits for the
// kernel to finish, about 15 ms.
type Conn struct {
	ns       *netns.NS
	messages *nftmsg.Conn
}

// Open opens a socket in ns, which must stay open as long as the connection. The error wraps
// [ErrNoNFT] if the kernel lacks nfnetlink.
func Open(ns *netns.NS) (*Conn, error) {
	messages, err := nftmsg.Open(ns)
	if err != nil {
		return nil, fmt.Errorf("nfnetlink: %w", explain(err, lackingSocket))
	}
	return &Conn{ns: ns, messages: messages}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.messages.Close() }

// Available returns nil if the kernel has nftables, else an error that wraps [ErrNoNFT].
func (c *Conn) Available() error {
	_, err := c.messages.HasTable(table)
	return explain(err, lackingQuestion)
}

// locked calls fn while it holds the lock of the namespace.
func (c *Conn) locked(ctx context.Context, fn func() error) error {
	unlock, err := c.ns.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return fn()
}

// Errors of a kernel that lacks nftables, or a part of it.
var (
	// Without nfnetlink the kernel does not know the type of the socket. EPERM and EACCES come from
	// a seccomp filter; the kernel itself allows the socket.
	lackingSocket = []syscall.Errno{unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EPERM,
		unix.EACCES}
	// Without nf_tables nfnetlink does not know the message.
	lackingQuestion = []syscall.Errno{unix.EPROTONOSUPPORT, unix.EINVAL}
	// Without the inet family, the type of a chain or an expression a skeleton cannot be built.
	lackingBuild = []syscall.Errno{unix.EOPNOTSUPP, unix.EAFNOSUPPORT, unix.ENOENT}
)

// explain wraps err into [ErrNoNFT] if it is one of answers.
func explain(err error, answers []syscall.Errno) error {
	for _, errno := range answers {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w: %w", ErrNoNFT, err)
		}
	}
	return err
}
