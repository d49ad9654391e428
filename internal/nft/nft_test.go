package nft

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestExplain passes errors of kernels that lack nftables; the test kernels have it.
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
		{"malformed message", unix.EINVAL, lackingBuild, false},
	} {
		err := explain(fmt.Errorf("receive: %w", row.errno), row.answers)
		if errors.Is(err, ErrNoNFT) != row.want || !errors.Is(err, row.errno) {
			t.Errorf("%s: got %v, want ErrNoNFT %t", row.name, err, row.want)
		}
	}
}
