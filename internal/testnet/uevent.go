package testnet

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// Uevents records the kernel's messages to udev about links in the namespace
// (NETLINK_KOBJECT_UEVENT). The returned function lists the events so far, such as "add eth0",
// "move eth1".
func Uevents(t testing.TB, n *Namespace) (seen func() []string) {
	t.Helper()
	fd := -1
	err := n.Run(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			unix.NETLINK_KOBJECT_UEVENT)
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

// linkEvent parses an event: a summary line, followed by lines KEY=VALUE that end with a zero byte.
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
