package demo

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/tenon-cni/tenon/internal/kernel"
)

const (
	pingFor   = 20 * time.Second       // all attempts together
	pingEvery = 100 * time.Millisecond // wait of each attempt for its reply
)

// family holds the differences between ICMP (RFC 792) and ICMPv6 (RFC 4443).
type family struct {
	network        string // for package net, with the protocol number
	request, reply byte   // types of messages
}

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return family{"ip4:1", 8, 0}
	}
	return family{"ip6:58", 128, 129}
}

// ping sends echo requests from a namespace until it receives a reply, and returns the round-trip
// time of that request.
func ping(ctx context.Context, from *kernel.Namespace, to netip.Addr) (time.Duration, error) {
	f := familyOf(to)
	var conn *net.IPConn
	err := from.Run(func() (err error) {
		conn, err = net.ListenIP(f.network, nil)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("ping %s: %w", to, err)
	}
	defer conn.Close()
	end := time.Now().Add(pingFor)
	for seq := 1; time.Now().Before(end); seq++ {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		start := time.Now()
		err := f.echo(conn, to, seq)
		if err == nil {
			return time.Since(start), nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, fmt.Errorf("ping %s: %w", to, err)
		}
	}
	return 0, fmt.Errorf("ping %s: no answer within %v", to, pingFor)
}

// echo sends one request and waits for the reply to it.
func (f family) echo(conn *net.IPConn, to netip.Addr, seq int) error {
	if err := conn.SetDeadline(time.Now().Add(pingEvery)); err != nil {
		return err
	}
	request := f.message(os.Getpid(), seq)
	if _, err := conn.WriteTo(request, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return err
	}
	buf := make([]byte, 1500)
	for {
		n, _, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		if n == len(request) && buf[0] == f.reply && bytes.Equal(buf[4:n], request[4:]) {
			return nil
		}
	}
}

// message returns an echo request: type, code, checksum, identifier, sequence number, data. For
// ICMPv6, the kernel replaces the checksum.
func (f family) message(id, seq int) []byte {
	m := []byte{f.request, 0, 0, 0}
	m = binary.BigEndian.AppendUint16(m, uint16(id))
	m = binary.BigEndian.AppendUint16(m, uint16(seq))
	m = append(m, "tenon!"...) // an even number of bytes, for checksum
	binary.BigEndian.PutUint16(m[2:], checksum(m))
	return m
}

// checksum returns the Internet checksum (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}
