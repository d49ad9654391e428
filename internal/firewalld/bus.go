package firewalld

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// bus is a connection with a D-Bus (D-Bus specification 0.43) that calls methods with strings. A library that can more is
// 0.5 MB of each plugin.
type bus struct {
	conn   net.Conn
	in     *bufio.Reader
	serial uint32
}

// The bus itself, as an object on it.
const (
	driver       = "org.freedesktop.DBus"
	driverObject = "/org/freedesktop/DBus"
)

// systemBus is the address of the system bus.
func systemBus() string {
	return cmp.Or(os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"), "unix:path=/var/run/dbus/system_bus_socket")
}

// dial connects with the first of the addresses that answers.
func dial(ctx context.Context, addresses string) (*bus, error) {
	var errs []error
	for address := range strings.SplitSeq(addresses, ";") {
		b, err := dialOne(ctx, address)
		if err == nil {
			return b, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func dialOne(ctx context.Context, address string) (*bus, error) {
	name, err := socket(address)
	if err != nil {
		return nil, err
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: name})
	if err != nil {
		return nil, err
	}
	b := &bus{conn: conn, in: bufio.NewReader(conn)}
	defer b.endWith(ctx)()
	if err = b.authenticate(); err == nil {
		_, err = b.call(ctx, method{driver, driverObject, driver, "Hello"})
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// socket is the name of the socket that an address of a bus says.
func socket(address string) (string, error) {
	if rest, ok := strings.CutPrefix(address, "unix:"); ok {
		for pair := range strings.SplitSeq(rest, ",") {
			key, value, _ := strings.Cut(pair, "=")
			value, err := url.PathUnescape(value)
			switch {
			case err != nil:
				return "", fmt.Errorf("address %q: %w", address, err)
			case key == "path":
				return value, nil
			case key == "abstract":
				return "@" + value, nil
			}
		}
	}
	return "", fmt.Errorf("address %q: neither unix:path nor unix:abstract", address)
}

// Close closes the connection.
func (b *bus) Close() error { return b.conn.Close() }

// endWith has reading and writing fail, for good, once the context ends, until stop is called.
func (b *bus) endWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = b.conn.SetDeadline(time.Unix(1, 0)) })
}

// authenticate says who calls, which the bus knows from the socket.
func (b *bus) authenticate() error {
	user := hex.EncodeToString([]byte(strconv.Itoa(os.Geteuid())))
	if _, err := io.WriteString(b.conn, "\x00AUTH EXTERNAL "+user+"\r\n"); err != nil {
		return err
	}
	answer, err := b.in.ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(answer, "OK ") {
		return fmt.Errorf("authentication: %q", strings.TrimSpace(answer))
	}
	_, err = io.WriteString(b.conn, "BEGIN\r\n")
	return err
}

// method is a method of an interface of an object.
type method struct{ destination, object, iface, member string }

// exception is an answer of type error, with what it says first.
type exception struct{ name, text string }

// Error returns the first line: firewalld appends every command that it gave to nft.
func (e *exception) Error() string {
	first, _, _ := strings.Cut(e.text, "\n")
	return cmp.Or(first, e.name)
}

// call calls a method and returns the body of the answer; an exception is an error.
func (b *bus) call(ctx context.Context, m method, arguments ...string) (*decoder, error) {
	defer b.endWith(ctx)()
	b.serial++
	if _, err := b.conn.Write(m.message(b.serial, arguments)); err != nil {
		return nil, err
	}
	for {
		a, err := readMessage(b.in)
		if err != nil {
			return nil, err
		}
		if a.replyTo != b.serial { // a signal
			continue
		}
		if a.exception == "" {
			return a.body, nil
		}
		e := &exception{name: a.exception}
		if strings.HasPrefix(a.signature, "s") {
			e.text = a.body.text()
		}
		return nil, e
	}
}
