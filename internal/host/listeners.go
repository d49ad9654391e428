package host

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// sockets are the tables of sockets (proc_net(5)) with the state in which a socket accepts packets
// from anywhere: TCP_LISTEN, or TCP_CLOSE for a UDP socket without a peer.
var sockets = []struct{ file, protocol, state string }{
	{"tcp", "tcp", "0A"}, {"tcp6", "tcp", "0A"}, {"udp", "udp", "07"}, {"udp6", "udp", "07"},
}

// listeners lists the sockets of the thread's namespace that accept connections or datagrams.
func listeners() (list []Listener, err error) {
	for _, s := range sockets {
		b, err := os.ReadFile("/proc/thread-self/net/" + s.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
			fields := strings.Fields(line)
			if i == 0 || len(fields) < 4 || fields[3] != s.state {
				continue
			}
			a, err := socketAddress(fields[1])
			if err != nil {
				return nil, fmt.Errorf("/proc/net/%s: %w", s.file, err)
			}
			list = append(list, Listener{s.protocol, a})
		}
	}
	return list, nil
}

// socketAddress decodes an address such as 0100007F:1F90: words of 4 bytes in native byte order.
func socketAddress(text string) (a netip.AddrPort, err error) {
	host, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(host)
	if err != nil {
		return a, err
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return a, err
	}
	for word := range slices.Chunk(b, 4) {
		if len(word) == 4 {
			binary.BigEndian.PutUint32(word, binary.NativeEndian.Uint32(word))
		}
	}
	addr, ok := netip.AddrFromSlice(b)
	if !ok {
		return a, fmt.Errorf("address %q", text)
	}
	return netip.AddrPortFrom(addr, uint16(n)), nil
}
