package dhcp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/unixsocket"
)

// Conn is a connection between the plugin and its daemon. It also passes file descriptors.
type Conn struct {
	rights
	in *bufio.Reader
}

// rights collects the files that arrive on a connection.
type rights struct {
	*net.UnixConn
	files []*os.File
}

// maxFiles limits the files of a message.
const maxFiles = 4

// unreachable is ErrUnreachable with the text of its cause.
type unreachable struct{ error }

func (unreachable) Is(target error) bool { return target == ErrUnreachable }

func (e unreachable) Unwrap() error { return e.error }

// Dial connects to a socket. The error wraps [ErrUnreachable] if no process listens, or can listen,
// at the path.
func Dial(path string) (*Conn, error) {
	if err := unixsocket.CheckPath(path); err != nil {
		return nil, unreachable{err}
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: path})
	switch {
	case err == nil:
		return NewConn(c), nil
	case unixsocket.Unreachable(err):
		return nil, unreachable{err}
	}
	return nil, err
}

// NewConn returns a Conn for a connection.
func NewConn(u *net.UnixConn) *Conn {
	c := &Conn{rights: rights{UnixConn: u}}
	c.in = bufio.NewReader(&c.rights)
	return c
}

// Close closes the connection and the files that Receive has not returned.
func (c *Conn) Close() error {
	errs := []error{c.UnixConn.Close()}
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Read reads from the connection.
func (c *Conn) Read(b []byte) (int, error) { return c.in.Read(b) }

func (r *rights) Read(b []byte) (int, error) {
	control := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, controlLen, _, _, err := r.ReadMsgUnix(b, control)
	if err == nil {
		err = r.keep(control[:controlLen])
	}
	if err == nil && n == 0 && len(b) > 0 {
		err = io.EOF
	}
	return max(n, 0), err // n is -1 if nothing could be read
}

func (r *rights) keep(control []byte) error {
	messages, err := unix.ParseSocketControlMessage(control)
	for _, m := range messages {
		fds, rightsErr := unix.ParseUnixRights(&m)
		if rightsErr != nil { // another kind of message
			continue
		}
		for _, fd := range fds {
			r.files = append(r.files, os.NewFile(uintptr(fd), "handed over"))
		}
	}
	if len(r.files) > maxFiles {
		err = errors.New("too many descriptors")
	}
	return err
}

// Line reads a line and returns it without its end. If the line is incomplete, it returns the part
// before the error.
func (c *Conn) Line(limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := c.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, io.EOF):
			return line, io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		case len(line) > limit:
			return line, errors.New("message is too long")
		}
	}
}

// Receive reads a message of at most limit bytes into v. It returns the file that came with the
// message, or nil.
func (c *Conn) Receive(limit int, v any) (*os.File, error) {
	line, err := c.Line(limit)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(line, v); err != nil {
		return nil, fmt.Errorf("malformed message: %w", err)
	}
	if len(c.files) == 0 {
		return nil, nil
	}
	first := c.files[0]
	c.files = c.files[1:]
	return first, nil
}

// Send sends a message, and passes f with it unless f is nil.
func (c *Conn) Send(message any, f *os.File) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if f == nil {
		_, err := c.Write(b)
		return err
	}
	n, _, err := c.WriteMsgUnix(b, unix.UnixRights(int(f.Fd())), nil)
	// Writing 0 bytes would fail if the peer has closed the connection.
	if err == nil && n < len(b) {
		_, err = c.Write(b[n:])
	}
	return err
}
