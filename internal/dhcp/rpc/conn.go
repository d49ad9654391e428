package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a connection that also carries descriptors.
type conn struct {
	*net.UnixConn
	ahead []byte     // read, but not asked for yet
	files []*os.File // that have come
}

// maxFiles may come with a message.
const maxFiles = 4

// maxPath is how long the path of a socket can be, in bytes (unix(7)).
const maxPath = 107

// checkLength explains the path that the kernel refuses as an invalid argument.
func checkLength(path string) error {
	if len(path) > maxPath {
		return fmt.Errorf("%s: the path has %d bytes, and that of a socket can have %d", path, len(path), maxPath)
	}
	return nil
}

// unreachable is ErrUnreachable with the text of its cause.
type unreachable struct{ error }

func (unreachable) Is(target error) bool { return target == ErrUnreachable }

func (e unreachable) Unwrap() error { return e.error }

// dial connects. It returns ErrUnreachable if no process listens, or can listen, at the path.
func dial(path string) (*conn, error) {
	if err := checkLength(path); err != nil {
		return nil, unreachable{err}
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: path})
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil, unreachable{err}
	}
	if err != nil {
		return nil, err
	}
	return &conn{UnixConn: c}, nil
}

// Close closes the connection and the files that take has not returned.
func (c *conn) Close() error {
	errs := []error{c.UnixConn.Close()}
	for _, f := range c.take() {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// take returns the files that have arrived.
func (c *conn) take() []*os.File {
	files := c.files
	c.files = nil
	return files
}

// Read reads from the connection, and keeps files that arrive.
func (c *conn) Read(b []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	control := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, controlLen, _, _, err := c.ReadMsgUnix(b, control)
	if err == nil {
		err = c.keep(control[:controlLen])
	}
	if err == nil && n == 0 && len(b) > 0 {
		err = io.EOF
	}
	return max(n, 0), err // -1 where nothing could be read
}

func (c *conn) keep(control []byte) error {
	messages, err := unix.ParseSocketControlMessage(control)
	for _, m := range messages {
		fds, rightsErr := unix.ParseUnixRights(&m)
		if rightsErr != nil { // of another kind
			continue
		}
		for _, fd := range fds {
			c.files = append(c.files, os.NewFile(uintptr(fd), "handed over"))
		}
	}
	if len(c.files) > maxFiles {
		err = errors.New("too many descriptors")
	}
	return err
}

// line reads a line, without its end.
func (c *conn) line(limit int) ([]byte, error) {
	var line []byte
	chunk := make([]byte, 4096)
	for {
		n, err := c.Read(chunk)
		if at := bytes.IndexByte(chunk[:n], '\n'); at >= 0 {
			c.ahead = append(bytes.Clone(chunk[at+1:n]), c.ahead...)
			return append(line, chunk[:at]...), nil
		}
		line = append(line, chunk[:n]...)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err == nil && len(line) > limit {
			err = errors.New("message is too long")
		}
		if err != nil {
			return line, err
		}
	}
}

// send writes b, and passes a file with it unless that is nil.
func (c *conn) send(b []byte, f *os.File) error {
	if f == nil {
		_, err := c.Write(b)
		return err
	}
	n, _, err := c.WriteMsgUnix(b, unix.UnixRights(int(f.Fd())), nil)
	if err == nil && n < len(b) { // writing nothing fails where the answer has come, and the connection is closed
		_, err = c.Write(b[n:])
	}
	return err
}

// until ends reads and writes with a context, up to the call of stop.
func (c *conn) until(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
}

// trusted returns an error unless the peer is root or the user of the daemon.
func (c *conn) trusted() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { peer, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, credErr); err != nil {
		return err
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("user %d may not use the daemon: only root may", peer.Uid)
	}
	return nil
}
