package network_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// TestTogether: plugins of different containers run at the same time, on one network and on
// several: no lock is held across plugins of different containers. Each of the 64 plugins waits
// until all are running.
func TestTogether(t *testing.T) {
	t.Parallel()
	const containers = 64
	for _, networks := range []int{1, 8} {
		t.Run(fmt.Sprint(networks), func(t *testing.T) {
			t.Parallel()
			meeting := newMeeting(containers)
			meet := map[cni.Command]invoke.Handler{}
			for _, verb := range []cni.Command{cni.Add, cni.Check, cni.Del} {
				meet[verb] = meeting.wait
			}
			c := &network.Client{Isolated: true, Caller: invoke.Fake{"meet": meet},
				StateDir: t.TempDir(), Log: quiet, Timeout: -1}
			nets := make([]*config.Network, networks)
			for i := range nets {
				nets[i] = list(t, "1.1.0", fmt.Sprintf("net%d", i), "meet")
			}
			attachment := func(i int) cni.Attachment {
				return request(fmt.Sprintf("c%d", i)).Attachment(nets[i%networks].Name)
			}
			for _, step := range []struct {
				verb cni.Command
				call func(ctx context.Context, i int) error
			}{
				{cni.Add, func(ctx context.Context, i int) error {
					_, err := c.Add(ctx, nets[i%networks], request(fmt.Sprintf("c%d", i)))
					return err
				}},
				{cni.Check, func(ctx context.Context, i int) error {
					return c.Check(ctx, attachment(i), nil)
				}},
				{cni.Del, func(ctx context.Context, i int) error {
					return c.Del(ctx, attachment(i), network.Fallback{})
				}},
			} {
				meeting.begin()
				// The time limit releases the other plugins if one is blocked.
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				errs := make([]error, containers)
				var wg sync.WaitGroup
				for i := range containers {
					wg.Go(func() { errs[i] = step.call(ctx, i) })
				}
				wg.Wait()
				cancel()
				if err := errors.Join(errs...); err != nil {
					t.Fatalf("%s: the plugins did not run at the same time: %v", step.verb, err)
				}
			}
		})
	}
}

// meeting is a plugin that waits until a number of calls have arrived, or one of them gives up.
type meeting struct {
	size int

	mu      sync.Mutex
	arrived int
	over    context.Context // ends with errMet or the reason of the failure
	end     context.CancelCauseFunc
}

var errMet = errors.New("all have met")

func newMeeting(size int) *meeting { return &meeting{size: size} }

// begin starts another meeting.
func (m *meeting) begin() {
	m.arrived = 0
	m.over, m.end = context.WithCancelCause(context.Background())
}

func (m *meeting) wait(ctx context.Context, c invoke.Call) ([]byte, bool) {
	m.mu.Lock()
	if m.arrived++; m.arrived == m.size {
		m.end(errMet)
	}
	m.mu.Unlock()
	select {
	case <-m.over.Done():
	case <-ctx.Done():
		m.end(ctx.Err())
	}
	if err := context.Cause(m.over); !errors.Is(err, errMet) {
		return cni.Errorf(cni.CodeTryAgainLater, "called off: %w", err).Encode(cni.Newest), false
	}
	if c.Env.Command == cni.Add {
		return []byte(`{"cniVersion":"1.1.0"}`), true
	}
	return nil, true
}
