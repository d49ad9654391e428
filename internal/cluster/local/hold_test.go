package local_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

const hold = 2 * time.Hour

// held is pods with a hold.
func held() cluster.Pool {
	p := pods
	p.Hold = cluster.Duration(hold)
	return p
}

// renew sets the end of hold as the agent does after a contact with the store.
func (n *node) renew() {
	n.Helper()
	n.change("pods", func(s *local.State) {
		d := local.NewDeadline(n.up, n.wall, hold)
		s.Hold = &d
	})
}

// TestHold: the clock that is further decides, also if the wall clock jumps by an hour or one of
// the clocks stood still while the virtual machine was paused.
func TestHold(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		up, wall time.Duration // since the last contact
		left     time.Duration
	}{
		{"just renewed", 0, 0, hold},
		{"in time", time.Hour, time.Hour, time.Hour},
		{"one nanosecond left", hold - 1, hold - 1, 1},
		{"at the instant", hold, hold, 0},
		{"later", 9 * time.Hour, 9 * time.Hour, 0},
		{"the wall clock jumped back by an hour", 90 * time.Minute, 30 * time.Minute,
			30 * time.Minute},
		{"the wall clock jumped back, and hold has ended", 130 * time.Minute, 70 * time.Minute, 0},
		{"the wall clock jumped forward by an hour", 30 * time.Minute, 90 * time.Minute,
			30 * time.Minute},
		{"the wall clock jumped beyond the end", 70 * time.Minute, 130 * time.Minute, 0},
		{"paused: the boot clock stood still", time.Minute, 5 * time.Hour, 0},
		{"the wall clock stood still", 5 * time.Hour, time.Minute, 0},
		{"the wall clock jumped before the contact", time.Hour, -time.Hour, time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.state(held(), owned("10.64.3.64/26"))
			n.renew()
			n.up, n.wall = n.up+row.up, n.wall.Add(row.wall)
			_, err := n.allocate("pods", local.Request{Owner: owner("c1")})
			if errors.Is(err, local.ErrHold) != (row.left == 0) || row.left > 0 && err != nil {
				t.Error(err)
			}
			n.with("pods", func(p *local.Pool) {
				if left := p.State.Hold.Left(n.store().Clock()); left != row.left {
					t.Errorf("%s left, want %s", left, row.left)
				}
			})
			n.release("pods", owner("c1"))
			n.renew()
			if _, err := n.allocate("pods", local.Request{Owner: owner("c2")}); err != nil {
				t.Errorf("after another contact: %v", err)
			}
		})
	}
}

// A pool with hold and without a deadline has had no contact since the pool got its hold.
func TestHoldWithoutContact(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.state(held(), owned("10.64.3.64/26"))
	n.wantErr("pods", local.Request{Owner: owner("c1")}, local.ErrUnconfirmed)
	n.renew()
	n.want("pods", "c1", "10.64.3.66/26 via 10.64.3.65")
}

// TestHoldEndsDuringAllocate: hold ends, the node reboots its confirmation, or an operator drains
// the node, between a reservation and the reply. Nothing stays reserved.
func TestHoldEndsDuringAllocate(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.state(held(), owned("10.64.3.64/26"))
	n.renew()
	reserved := 0
	store := local.New(local.Options{Dir: n.dir, BootID: n.boot,
		Clock: func() (time.Duration, time.Time) { return n.up, n.wall },
		Change: func(op string, apply, _ func() error) error {
			if strings.HasPrefix(op, "reserve ") {
				reserved++
				n.up += 3 * time.Hour // the process is paused
			}
			return apply()
		}})
	p, err := store.Open(ctx, "pods", false)
	n.must(err)
	canceled, cancel := context.WithCancel(ctx)
	_, err = p.Allocate(canceled, local.Request{Owner: owner("c1")})
	cancel()
	n.must(p.Close())
	if !errors.Is(err, local.ErrHold) || reserved != 1 {
		t.Errorf("%v after %d reservations", err, reserved)
	}
	n.wantLeases("pods")
}

// The clocks of the system.
func TestClock(t *testing.T) {
	t.Parallel()
	now := local.New(local.Options{}).Clock()
	up, wall := now()
	if up <= 0 || time.Since(wall).Abs() > time.Minute || strings.Contains(wall.String(), "m=") {
		t.Errorf("boot clock %s, wall clock %s", up, wall)
	}
	d := local.NewDeadline(up, time.Now(), time.Hour)
	if d.Passed(now) || d.Left(now) > time.Hour || strings.Contains(d.Wall.String(), "m=") {
		t.Errorf("%+v", d)
	}
}
