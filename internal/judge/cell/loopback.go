package cell

import (
	"errors"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
)

// up enables the loopback interface of the cell.
func up() error { return onHost(loopbackUp) }

// onHost calls change with a connection to the namespace of the cell.
func onHost(change func(*netlink.Conn) error) (err error) {
	own, err := netns.Current()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	conn, err := netlink.Open(own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return change(conn)
}

func loopbackUp(conn *netlink.Conn) error {
	return conn.Links.SetUp(netlink.Link{Index: 1, Name: "lo"}, true)
}
