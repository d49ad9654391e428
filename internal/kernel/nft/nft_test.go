package nft

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel/netns"
)

// The kernels at hand have nftables; these are the answers of those that do not.
func TestExplain(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		errno   syscall.Errno
		answers []syscall.Errno
		want    bool
	}{
		{"no nfnetlink", unix.EPROTONOSUPPORT, lackingQuestion, true},
		{"no nf_tables", unix.EINVAL, lackingQuestion, true},
		{"not allowed to ask", unix.EPERM, lackingQuestion, false},
		{"no inet family", unix.EAFNOSUPPORT, lackingBuild, true},
		{"no NAT", unix.ENOENT, lackingBuild, true},
		{"not allowed to build", unix.EPERM, lackingBuild, false},
		{"our mistake", unix.EINVAL, lackingBuild, false},
	} {
		err := explain(fmt.Errorf("receive: %w", row.errno), row.answers)
		if errors.Is(err, ErrNoNFT) != row.want || !errors.Is(err, row.errno) {
			t.Errorf("%s: got %v, want ErrNoNFT %t", row.name, err, row.want)
		}
	}
}

// The library waits with select(2), which knows no descriptor above 1023: that is an error, not a panic. Not parallel,
// because it takes the low descriptors away.
func TestOpenWithManyFiles(t *testing.T) {
	ns, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for range maxDescriptor + 1 {
		f, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	c, err := Open(ns)
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("got %v", err)
	}
}
