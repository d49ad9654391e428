package filestore_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// linkErrors are the errors of link(2) on file systems without hard links: vfat and exfat, network
// file systems, old FUSE servers.
var linkErrors = map[string]unix.Errno{
	"EPERM": unix.EPERM, "EOPNOTSUPP": unix.EOPNOTSUPP, "ENOSYS": unix.ENOSYS,
}

// noLinksEnv is the environment variable that names the error of linkat(2) in a child process.
const noLinksEnv = "FILE_TEST_LINK_ERROR"

// without makes a child run without hard links, unless the name of the error is empty.
func without(name string, cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(cmd.Env, noLinksEnv+"="+name)
	return cmd
}

// withoutLinks makes linkat(2) fail in this process from now on, by seccomp(2), because neither the
// host kernel nor the kernel of the VM tier has a writable file system without hard links.
func withoutLinks(errno unix.Errno) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_LINKAT, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if failed != 0 {
		return fmt.Errorf("seccomp: %w", failed)
	}
	return nil
}

// TestFileSystemWithoutHardLinks: without hard links the layout and the behaviour stay the same:
// files are complete, no address is allocated twice, and the caches are valid.
func TestFileSystemWithoutHardLinks(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root)
	for name := range linkErrors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			if out, err := without(name, child("no-links", path)).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			wantListing(t, path,
				`10.0.0.2 -rw------- "c1\r\neth0"`,
				`10.0.0.4 -rw------- "c3\r\neth0"`,
				`last_reserved_ip.0 -rw------- "10.0.0.4"`,
				`lock -rwxr-x--- ""`)
			wantBoots(t, path, bootID, "10.0.0.2 current", "10.0.0.4 current")
			c := countScans(t, path)
			mustRelease(t, c.open, owner("c1"))
			wantConsistent(t, path, noLinksSets())
		})
	}
}

func noLinksSets() []ipam.RangeSet {
	sets := []ipam.RangeSet{{{Subnet: netip.MustParsePrefix("10.0.0.0/29")}}}
	if err := ipam.CanonicalizeSets(sets); err != nil {
		panic(err)
	}
	return sets
}

// noLinks allocates three addresses and releases the second, in a process without link(2).
func noLinks(args []string) int {
	path := args[0]
	n, sets := network(path, bootID), noLinksSets()
	errs := []error{}
	for i, container := range []string{"c1", "c2", "c3"} {
		all, err := n.Allocate(ctx, ipam.Request{Owner: owner(container), Sets: sets})
		if want := addr(fmt.Sprintf("10.0.0.%d", i+2)); err == nil && all[0].Addr != want {
			err = fmt.Errorf("%s got %s, want %s", container, all[0].Addr, want)
		}
		errs = append(errs, err)
	}
	_, err := n.Allocate(ctx,
		ipam.Request{Owner: owner("c4"), Sets: sets, Addrs: []netip.Addr{addr("10.0.0.3")}})
	if inUse := new(ipam.InUseError); !errors.As(err, &inUse) || inUse.Holder.Owner != owner("c2") {
		errs = append(errs, fmt.Errorf("second holder: %v", err))
	}
	errs = append(errs, n.Release(ctx, owner("c2")),
		os.Link(filepath.Join(path, "10.0.0.2"), path+"/link"))
	if err := errors.Join(errs...); !strings.HasPrefix(err.Error(), "link ") {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
