package host

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// Messages of sock_diag(7): struct inet_diag_req_v2 and struct inet_diag_msg of linux/inet_diag.h.
const (
	sockDiagByFamily = 20
	diagRequestSize  = 56
	diagStates       = 4 // a bit for each state

	diagSize              = 72
	diagQueue, diagInode  = 60, 68 // of a listener, the queue is its backlog
	stateListen, tcpProto = 10, unix.IPPROTO_TCP
)

// backlogs returns the lengths of the queues of the TCP listeners in the thread's namespace, by
// inode. It returns none if the kernel lacks sock_diag.
func backlogs() map[uint64]int {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	netlink.Prepare(fd)
	var exchange netlink.Exchange
	lengths := map[uint64]int{}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		request := make([]byte, diagRequestSize)
		request[0], request[1] = family, tcpProto
		binary.NativeEndian.PutUint32(request[diagStates:], 1<<stateListen)
		_, err := netlink.List(&exchange, fd, sockDiagByFamily, request,
			func(_ []struct{}, b []byte) ([]struct{}, error) {
				if len(b) >= diagSize {
					inode := uint64(binary.NativeEndian.Uint32(b[diagInode:]))
					lengths[inode] = int(binary.NativeEndian.Uint32(b[diagQueue:]))
				}
				return nil, nil
			})
		if err != nil {
			return nil
		}
	}
	return lengths
}
