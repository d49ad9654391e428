package testnet

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// Uevents listens to what the kernel tells udev of links in the namespace (NETLINK_KOBJECT_UEVENT). The function returns
// what there was so far, such as "add eth0", "move eth1".
func Uevents(t testing.TB, n *Namespace) (seen func() []string) {
	t.Helper()
	fd := -1
	err := n.Run(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return func() (events []string) {
		t.Helper()
		buf := make([]byte, 8192)
		for {
			size, err := unix.Read(fd, buf)
			if errors.Is(err, unix.EAGAIN) {
				return events
			}
			if err != nil {
				t.Fatal(err)
			}
			if e := linkEvent(buf[:size]); e != "" {
				events = append(events, e)
			}
		}
	}
}

// linkEvent reads an event: lines KEY=VALUE that end with a zero byte, after one that says the same in short.
func linkEvent(message []byte) string {
	value := map[string]string{}
	for line := range bytes.SplitSeq(message, []byte{0}) {
		if key, v, ok := bytes.Cut(line, []byte("=")); ok {
			value[string(key)] = string(v)
		}
	}
	if value["SUBSYSTEM"] != "net" {
		return ""
	}
	return fmt.Sprintf("%s %s", value["ACTION"], value["INTERFACE"])
}
