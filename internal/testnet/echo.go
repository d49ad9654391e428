package testnet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Space is a network namespace in which functions run: a [Namespace], or a handle on one.
type Space interface{ Run(fn func() error) error }

// Echo serves TCP connections and UDP datagrams of both families on a port of a namespace until the
// test ends. It sends back what it receives.
func Echo(t testing.TB, in Space, port int) {
	t.Helper()
	var running sync.WaitGroup
	var sockets []io.Closer
	t.Cleanup(func() {
		for _, s := range sockets {
			s.Close()
		}
		running.Wait()
	})
	address := ":" + strconv.Itoa(port)
	// Package net decides once per process, in any namespace, whether a wildcard means both families.
	for _, family := range []string{"4", "6"} {
		var l net.Listener
		var u net.PacketConn
		err := in.Run(func() error {
			var err, other error
			l, err = net.Listen("tcp"+family, address)
			u, other = net.ListenPacket("udp"+family, address)
			return errors.Join(err, other)
		})
		if family == "6" && errors.Is(err, unix.EAFNOSUPPORT) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, l, u)
		running.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				running.Go(func() {
					defer c.Close()
					// Without splice(2), for which the Go runtime keeps pipes open.
					_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
				})
			}
		})
		running.Go(func() {
			for b := make([]byte, 64); ; {
				n, from, err := u.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = u.WriteTo(b[:n], from)
			}
		})
	}
}

// Dial opens a connection from a namespace.
func Dial(from Space, network, address string) (c net.Conn, err error) {
	err = from.Run(func() (err error) {
		c, err = net.DialTimeout(network, address, Patience)
		return err
	})
	return c, err
}

// Exchange sends a text of at most 64 bytes to the service of [Echo], and waits for the same text.
func Exchange(c net.Conn, text string) error {
	if err := c.SetDeadline(time.Now().Add(Patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	b := make([]byte, len(text))
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != text {
		return fmt.Errorf("sent %q, got %q", text, b)
	}
	return nil
}
