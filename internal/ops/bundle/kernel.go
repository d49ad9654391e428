package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// networkMessage matches messages of the kernel about networking. All others stay out, because any
// program can write to the log.
var networkMessage = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^[\w.\-: ]{0,40}\b(bridge|br_netfilter|nf_\w+|nft\w*|` +
		`netfilter|conntrack|x_tables|ip6?_tables|neighbour|IPv[46]|ICMP\w*|TCP|UDP|veth\w*|vxlan\w*|` +
		`macvlan\w*|ipvlan\w*|8021q|bond\w*|tun|tap|openvswitch|device \S+ (entered|left)|` +
		`unregister_netdevice|NETDEV WATCHDOG|cni\w*)\b`)
})

// kernelBytes is how much of the log's end [KernelLog] returns.
const kernelBytes = 256 << 10

// KernelLog returns the last messages about networking in the kernel's log (Documentation/ABI/
// testing/dev-kmsg), with the seconds since the boot.
func KernelLog(ctx context.Context) ([]byte, int, error) {
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	fd := int(f.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, 0, err
	}
	var out bytes.Buffer
	record := make([]byte, 8<<10)
	for ctx.Err() == nil {
		n, err := unix.Read(fd, record)
		switch {
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
			return lastLines(out.Bytes(), kernelBytes), 0, nil
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			continue // the record was overwritten; the next read returns a later one
		case err != nil:
			return out.Bytes(), 0, err
		}
		out.WriteString(kernelLine(string(record[:n])))
	}
	return out.Bytes(), 0, ctx.Err()
}

// lastLines returns the lines in the last bytes of a text.
func lastLines(text []byte, size int) []byte {
	if len(text) <= size {
		return text
	}
	_, text, _ = bytes.Cut(text[len(text)-size:], []byte("\n"))
	return text
}

// kernelLine formats a record "level,number,microseconds,flags;message" if it is about networking.
func kernelLine(record string) string {
	head, message, ok := strings.Cut(record, ";")
	fields := strings.Split(head, ",")
	if !ok || len(fields) < 3 {
		return ""
	}
	message, _, _ = strings.Cut(message, "\n")
	level, levelErr := strconv.ParseUint(fields[0], 10, 32)
	at, err := strconv.ParseUint(fields[2], 10, 63)
	const fromKernel = 0 // the facility, in the bits above the level
	if errors.Join(levelErr, err) != nil || level>>3 != fromKernel || !networkMessage().MatchString(message) {
		return ""
	}
	since := time.Duration(at) * time.Microsecond
	return fmt.Sprintf("[%12.6f] %s\n", since.Seconds(), message)
}
