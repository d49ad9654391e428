package host

import (
	"context"
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
	"sync"

	"github.com/tenon-cni/tenon/internal/netns"
)

// ReadListeners reads the listeners of a namespace of this host, if it still exists. That is not part
// of [Read], because the kernel searches the sockets of all namespaces for the ones of one.
func (n *Namespace) ReadListeners() error {
	ns, err := n.Open()
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Visit(func() (err error) {
		n.Listeners, err = listeners()
		return err
	})
}

// ReadListeners reads the listeners of all namespaces until ctx ends. It returns the number of
// namespaces that it did not read.
func (h *Host) ReadListeners(ctx context.Context) (unread int) {
	for i := range h.Namespaces {
		if ctx.Err() != nil || h.Namespaces[i].ReadListeners() != nil {
			unread++
		}
	}
	return unread
}

// tables are the tables of sockets (proc_net(5)): the file, the name in the statistics of sockets, and
// the state in which a socket accepts packets from anywhere. That is TCP_LISTEN, or TCP_CLOSE for a
// UDP socket without a peer.
var tables = []struct{ file, name, protocol, state string }{
	{"tcp", "TCP", "tcp", "0A"}, {"tcp6", "TCP6", "tcp", "0A"},
	{"udp", "UDP", "udp", "07"}, {"udp6", "UDP6", "udp", "07"},
}

// listeners lists the sockets of the thread's namespace that accept connections or datagrams.
func listeners() ([]Listener, error) {
	used, err := usedTables()
	if err != nil {
		return nil, err
	}
	list, limits := []Listener{}, sync.OnceValue(backlogs)
	for _, t := range tables {
		if !used[t.name] {
			continue
		}
		b, err := os.ReadFile(socketDir + t.file)
		if err != nil {
			return nil, err
		}
		for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
			fields := strings.Fields(line)
			if i == 0 || len(fields) < 5 || fields[3] != t.state {
				continue
			}
			l, err := newListener(t.protocol, fields, limits)
			if err != nil {
				return nil, fmt.Errorf("/proc/net/%s: %w", t.file, err)
			}
			list = append(list, l)
		}
	}
	return list, nil
}

// newListener decodes the fields of a line, at least five. It calls limits, which returns the
// backlogs of sockets by inode, only for a socket with waiting connections.
func newListener(protocol string, fields []string, limits func() map[uint64]int) (Listener, error) {
	const inode = 9 // the number of the field
	a, err := socketAddress(fields[1])
	l := Listener{Protocol: protocol, Addr: a}
	_, queue, ok := strings.Cut(fields[4], ":")
	if err != nil || !ok || protocol != "tcp" {
		return l, err
	}
	n, err := strconv.ParseUint(queue, 16, 31)
	if l.Waiting = int(n); n > 0 && len(fields) > inode {
		id, _ := strconv.ParseUint(fields[inode], 10, 64) // 0: not known
		l.Backlog = limits()[id]
	}
	return l, err
}

// socketDir holds the tables and statistics of sockets in the thread's namespace.
const socketDir = "/proc/thread-self/net/"

// usedTables returns the tables with sockets of the thread's namespace, by their names in the
// statistics: "TCP6: inuse 2". To read a table, the kernel visits the sockets of all namespaces.
func usedTables() (map[string]bool, error) {
	used := map[string]bool{}
	for _, file := range []string{"sockstat", "sockstat6"} {
		text, err := netns.ReadFile(socketDir + file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			if f := strings.Fields(line); len(f) > 2 && f[1] == "inuse" && f[2] != "0" {
				used[strings.TrimSuffix(f[0], ":")] = true
			}
		}
	}
	return used, nil
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
