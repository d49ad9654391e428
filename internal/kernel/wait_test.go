package kernel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestWaitUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inside, host := b.veth(t)
	must(t, b.host.Links.Up(host))
	other := open(t, kernel.Begin(t.Context()), b.Container("container"))
	done := make(chan error)
	// Set the link up after the wait has begun.
	time.AfterFunc(50*time.Millisecond, func() { done <- other.Links.Up(inside) })
	ctx, cancel := context.WithTimeout(t.Context(), testnet.Patience)
	defer cancel()
	must(t, b.host.Links.WaitUp(ctx, host))
	must(t, <-done)
	if l, err := b.host.Links.ByName("veth0"); err != nil || l.OperState != kernel.OperUp {
		t.Errorf("after the wait: %+v, %v", l, err)
	}
	must(t, b.host.Links.WaitUp(ctx, host)) // already up
}

func TestWaitUpDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, host := b.veth(t)
	must(t, b.host.Links.Up(host))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	err := b.host.Links.WaitUp(ctx, host)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `link "veth0" is lowerlayerdown, not up`) &&
		!strings.Contains(err.Error(), `link "veth0" is down, not up`) &&
		!strings.Contains(err.Error(), `link "veth0" is unknown, not up`) { // the kernel sets the state a little later
		t.Errorf("got %v", err)
	}
}

func TestWaitUpCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, host := b.veth(t)
	cause := errors.New("terminated")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	if err := b.host.Links.WaitUp(ctx, host); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}

func TestWaitUpLinkGoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, host := b.veth(t)
	other := open(t, kernel.Begin(t.Context()), b.Host)
	done := make(chan error)
	time.AfterFunc(50*time.Millisecond, func() { done <- other.Links.Delete(host) })
	ctx, cancel := context.WithTimeout(t.Context(), testnet.Patience)
	defer cancel()
	if err := b.host.Links.WaitUp(ctx, host); !errors.Is(err, kernel.ErrNoLink) {
		t.Errorf("got %v, want %v", err, kernel.ErrNoLink)
	}
	must(t, <-done)
}

func TestWaitDAD(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inside, _ := b.vethUp(t)
	must(t, b.container.Addrs.Add(inside, prefix("fd00::3/64")))
	ctx, cancel := context.WithTimeout(t.Context(), testnet.Patience)
	defer cancel()
	must(t, b.container.Addrs.WaitDAD(ctx, inside))
	for _, a := range addrInfo(t, b) {
		if a["tentative"] == true {
			t.Errorf("still tentative: %v", a)
		}
	}
}

func TestWaitDADFindsDuplicate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inside, host := b.vethUp(t)
	// Without detection, the address is valid at once.
	must(t, b.host.Sysctl.Set("net/ipv6/conf/veth0/accept_dad", "0"))
	must(t, b.host.Addrs.Add(host, prefix("fd00::3/64")))
	must(t, b.container.Addrs.Add(inside, prefix("fd00::4/64")))
	must(t, b.container.Addrs.Add(inside, prefix("fd00::3/64")))
	ctx, cancel := context.WithTimeout(t.Context(), testnet.Patience)
	defer cancel()
	err := b.container.Addrs.WaitDAD(ctx, inside)
	var duplicate *kernel.DuplicateError
	if !errors.As(err, &duplicate) || duplicate.Link != "eth0" || duplicate.Addr != prefix("fd00::3/64") {
		t.Errorf("got %v", err)
	}
	if want := `link "eth0": duplicate address detection failed for fd00::3/64`; err != nil && err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestWaitDADDeadline(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		carrier bool
		want    error
	}{
		{"with a carrier", true, context.DeadlineExceeded},
		{"without a carrier", false, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			inside, host := b.veth(t)
			// One probe per second.
			must(t, b.container.Sysctl.Set("net/ipv6/conf/eth0/dad_transmits", "30"))
			must(t, b.container.Links.Up(inside))
			if row.carrier {
				must(t, b.host.Links.Up(host))
				must(t, b.container.Links.WaitUp(t.Context(), inside))
			}
			must(t, b.container.Addrs.Add(inside, prefix("fd00::3/64")))
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := b.container.Addrs.WaitDAD(ctx, inside); !errors.Is(err, row.want) {
				t.Errorf("got %v, want %v", err, row.want)
			}
		})
	}
}

// TestWaitDADOfLinkThatIsDown is R-74: WaitDAD does not wait for a link on which detection cannot
// start.
func TestWaitDADOfLinkThatIsDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inside, _ := b.veth(t)
	must(t, b.container.Addrs.Add(inside, prefix("fd00::3/64")))
	ctx, cancel := context.WithTimeout(t.Context(), testnet.Patience)
	defer cancel()
	must(t, b.container.Addrs.WaitDAD(ctx, inside))
	if ctx.Err() != nil {
		t.Error("WaitDAD waited until the deadline")
	}
}

func TestWaitDADCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inside, _ := b.veth(t)
	must(t, b.container.Links.Up(inside))
	must(t, b.container.Addrs.Add(inside, prefix("fd00::3/64")))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := b.container.Addrs.WaitDAD(ctx, inside); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
