package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/v4"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// handle answers a request.
func (d *Daemon) handle(ctx context.Context, q *dhcp.Request) *dhcp.Reply {
	if q.Verb == dhcp.HandOver {
		return d.handOver()
	}
	d.mu.Lock()
	ending := d.ending
	d.busy++
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.busy--
		d.idle.Broadcast()
	}()
	if ending {
		return dhcp.Fail(cni.Errorf(cni.CodeTryAgainLater, "the DHCP daemon is stopping"))
	}
	switch q.Verb {
	case dhcp.Allocate:
		return reply(d.allocate(ctx, q))
	case dhcp.Check:
		return reply(d.check(ctx, q))
	case dhcp.Release:
		return reply(nil, d.release(ctx, q))
	case dhcp.Collect:
		return reply(nil, d.collect(ctx, q))
	case dhcp.List:
		return &dhcp.Reply{Leases: d.list()}
	case dhcp.Status:
		return new(dhcp.Reply)
	}
	return dhcp.Fail(fmt.Errorf("unknown request %q", q.Verb))
}

// reply returns the reply with a result, which may be nil, or with an error.
func reply(r *cni.Result, err error) *dhcp.Reply {
	var encoded []byte
	if err == nil && r != nil {
		encoded, err = r.Encode(cni.V110)
	}
	if err != nil {
		return dhcp.Fail(err)
	}
	return &dhcp.Reply{Result: encoded}
}

// wanted returns the attachment of a request, with the settings of its network.
func wanted(q *dhcp.Request) (Record, error) {
	n, err := dhcp.Parse(q.Config)
	if err != nil {
		return Record{}, err
	}
	l := Record{Attachment: cni.Attachment{Network: n.Name, Container: q.Container,
		IfName: q.IfName}, Priority: n.IPAM.Priority}
	if err := l.Validate(); err != nil {
		return l, err
	}
	if l.Options, l.Parameters, err = n.IPAM.Options(q.Args); err != nil {
		return l, err
	}
	l.DHCP6 = n.IPAM.DHCP6
	l.ClientID = v4.ClientID(strings.Join([]string{l.Container, l.Network, l.IfName}, "/"))
	l.Place.Path = q.Netns
	return l, nil
}

// allocate returns the address that the attachment has, or gets one.
func (d *Daemon) allocate(ctx context.Context, q *dhcp.Request) (*cni.Result, error) {
	rec, err := wanted(q)
	if err != nil {
		return nil, err
	}
	at, err := d.host.enter(ctx, &rec, q.NS)
	if err != nil {
		if errors.Is(err, kernel.ErrNoNamespace) {
			return nil, cni.Errorf(cni.CodeUnknownContainer, "%w", err)
		}
		return nil, err
	}
	name := dhcp.FileName(rec.Attachment)
	err = d.notes.Remove(name)
	if err == nil && rec.DHCP6 == dhcp.SLAAC {
		err = at.acceptRouters(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, at.Close())
	}
	l, created, err := d.obtain(ctx, rec, at)
	if err != nil {
		return nil, err
	}
	select {
	case <-l.first:
	case <-ctx.Done():
		if created {
			l.stop(errRelease)
			<-l.ended
		}
		return nil, cni.Errorf(cni.CodeTryAgainLater, "%w", context.Cause(ctx))
	}
	r, err := l.outcome()
	if err == nil && rec.DHCP6 == dhcp.SLAAC {
		err = d.awaitRouters(ctx, &rec, q.NS, r)
	}
	if err != nil && created {
		err = errors.Join(err, d.drop(ctx, name))
	}
	return r, err
}

// obtain returns the lease that is there for a place, or one that is begun; it takes care of at.
func (d *Daemon) obtain(
	ctx context.Context, rec Record, at *openLink,
) (l *lease, created bool, err error) {
	name := dhcp.FileName(rec.Attachment)
	for {
		d.mu.Lock()
		l := d.all[name]
		switch {
		case d.ending:
			d.mu.Unlock()
			return nil, false, errors.Join(cni.Errorf(cni.CodeTryAgainLater,
				"the DHCP daemon is stopping"), at.Close())
		case l == nil:
			l = d.start(rec, d.ResendTimeout, at)
			d.all[name] = l
			d.mu.Unlock()
			return l, true, nil
		}
		d.mu.Unlock()
		had := l.snapshot()
		same := had.DHCP6 == rec.DHCP6 && had.Place.NS == rec.Place.NS &&
			had.Place.Index == rec.Place.Index
		if same && had.Lost == "" && had.Lost6 == "" {
			return l, false, at.Close()
		}
		_ = d.drop(ctx, name) // the container is a different one, or its address is lost
		if ctx.Err() != nil {
			return nil, false, errors.Join(context.Cause(ctx), at.Close())
		}
	}
}

func (l *lease) snapshot() Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.saved
}

// outcome returns the result of the lease, or the reason that there is none.
func (l *lease) outcome() (*cni.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var none *noLeaseError
	switch {
	case errors.As(l.failure, &none):
		return nil, cni.Errorf(cni.CodeInternal, "no more tries").WithDetails(none.Error())
	case l.failure != nil:
		return nil, l.failure
	case l.saved.Lease == nil:
		why := cmp.Or(l.saved.Lost, l.reason, l.status)
		return nil, cni.Errorf(cni.CodeInternal, "no lease for interface %s of container %s: %s",
			l.saved.IfName, l.saved.Container, why)
	}
	if l.saved.Lost6 != "" {
		return nil, cni.Errorf(cni.CodeInternal,
			"no DHCPv6 lease for interface %s of container %s: %s",
			l.saved.IfName, l.saved.Container, l.saved.Lost6)
	}
	r := result(l.saved.Lease, l.saved.Priority)
	add6(r, &l.saved)
	return r, nil
}

// check returns the address of the attachment without asking a server.
func (d *Daemon) check(ctx context.Context, q *dhcp.Request) (*cni.Result, error) {
	rec, err := wanted(q)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	l := d.all[dhcp.FileName(rec.Attachment)]
	d.mu.Unlock()
	if l == nil {
		return d.adoptForeign(ctx, q, rec)
	}
	had := l.snapshot()
	at, err := d.host.enter(ctx, &rec, q.NS)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	if had.Place.NS != rec.Place.NS || had.Place.Index != rec.Place.Index {
		return nil, cni.Errorf(cni.CodeInternal,
			"the lease is for another interface: expected number %d in namespace %d, found number %d in namespace %d",
			had.Place.Index, had.Place.NS.Inode, rec.Place.Index, rec.Place.NS.Inode)
	}
	r, err := l.outcome()
	if err == nil && had.DHCP6 == dhcp.SLAAC {
		err = at.addAdvertised(ctx, r)
	}
	return r, err
}

// release releases the leases of the attachment. It needs only the name of the network from the
// configuration.
func (d *Daemon) release(ctx context.Context, q *dhcp.Request) error {
	n, err := dhcp.Parse(q.Config)
	if err != nil {
		return err
	}
	name := dhcp.FileName(cni.Attachment{Network: n.Name, Container: q.Container, IfName: q.IfName})
	return errors.Join(d.drop(ctx, name), d.notes.Remove(name))
}

// collect releases the leases of attachments of a network that are no longer valid.
func (d *Daemon) collect(ctx context.Context, q *dhcp.Request) error {
	n, err := dhcp.Parse(q.Config)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range d.sorted() {
		a := l.snapshot().Attachment
		valid := slices.Contains(q.Valid,
			cni.ValidAttachment{ContainerID: a.Container, IfName: a.IfName})
		if a.Network == n.Name && !valid {
			errs = append(errs, d.drop(ctx, l.name))
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// sorted returns the leases in the order of their file names.
func (d *Daemon) sorted() []*lease {
	d.mu.Lock()
	defer d.mu.Unlock()
	byName := func(a, b *lease) int { return cmp.Compare(a.name, b.name) }
	return slices.SortedFunc(maps.Values(d.all), byName)
}

func (d *Daemon) list() (list []dhcp.Lease) {
	for _, l := range d.sorted() {
		l.mu.Lock()
		s := l.saved
		out := dhcp.Lease{
			Network: s.Network, Container: s.Container, IfName: s.IfName, Netns: s.Place.Path,
			State: l.status, Reason: cmp.Or(s.Lost, s.Lost6, l.reason), DNS: s.DNS(),
		}
		l.mu.Unlock()
		if s.Lease != nil {
			out.Addresses = s.Addresses()
			out.Server, out.Renew, out.Expires = s.Lease.Server.String(), s.Lease.Renew,
				s.Lease.Expires
		}
		list = append(list, out)
	}
	return list
}

// drainTime is the time after which a daemon that is being replaced cancels requests in progress.
const drainTime = 5 * time.Second

// handOver ends the daemon and passes the socket to the caller. Meanwhile, clients wait in the
// socket's queue.
func (d *Daemon) handOver() *dhcp.Reply {
	f, err := d.listener.File()
	if err == nil {
		err = d.listener.Close()
	}
	if err != nil {
		return dhcp.Fail(err)
	}
	defer time.AfterFunc(drainTime, d.cancelRequests).Stop()
	d.mu.Lock()
	for d.busy > 0 {
		d.idle.Wait()
	}
	d.mu.Unlock()
	d.leave()
	close(d.handedOver)
	return &dhcp.Reply{Listener: f}
}

// ErrRuns reports that another daemon uses the same leases.
var ErrRuns = errors.New("another daemon is using them")

// lock prevents a second daemon from using the same leases. unlock may be called twice.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := statefile.Open(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("the leases in %s: %w", dir, ErrRuns), f.Close())
		case <-tick.C:
		}
	}
}
