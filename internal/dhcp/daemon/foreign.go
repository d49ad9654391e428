package daemon

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/v4"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// unknownTime is the assumed lease time of an address that another daemon has requested, until the
// server confirms it.
const unknownTime = time.Hour

// adoptForeign adopts the lease of an attachment from the upstream plugin's daemon, which stores no
// files: the address in prevResult, if the interface has it. It does not wait until the server
// confirms the lease.
func (d *Daemon) adoptForeign(
	ctx context.Context, q *dhcp.Request, rec Record,
) (*cni.Result, error) {
	unknown := cni.Errorf(cni.CodeInternal,
		"the daemon has no lease for interface %s of container %s",
		rec.IfName, rec.Container)
	at, err := d.host.enter(ctx, &rec, q.NS)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	var have []netip.Prefix
	err = at.visit(ctx, func(space *kernel.Space) (err error) {
		have, err = space.Addrs.Of(at.link)
		return err
	})
	if err != nil {
		return nil, err
	}
	was := slices.DeleteFunc(previous(q.Config), func(p netip.Prefix) bool {
		return !p.Addr().Is4() || !slices.Contains(have, p)
	})
	if len(was) != 1 || rec.DHCP6 != "" || !d.host.reachable(&rec.Place) {
		return nil, unknown
	}
	now := time.Now()
	rec.Lease = &v4.Lease{
		Address: was[0], Renew: now.Add(unknownTime / 2), Rebind: now.Add(unknownTime / 8 * 7),
		Expires: now.Add(unknownTime),
	}
	name := dhcp.FileName(rec.Attachment)
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.all[name]
	switch {
	case l != nil: // a concurrent request has adopted it
	case d.ending:
		return nil, cni.Errorf(cni.CodeTryAgainLater, "the DHCP daemon is stopping")
	default:
		if err := d.leases.Write(name, &rec); err != nil {
			return nil, err
		}
		l = d.start(rec, 0, nil)
		d.all[name] = l
	}
	return l.outcome()
}

// previous returns the addresses of prevResult in a configuration.
func previous(config []byte) (list []netip.Prefix) {
	var conf struct {
		CNIVersion string          `json:"cniVersion"`
		PrevResult json.RawMessage `json:"prevResult"`
	}
	if json.Unmarshal(config, &conf) != nil {
		return nil
	}
	v, err := cni.ParseVersion(conf.CNIVersion)
	if err != nil {
		return nil
	}
	r, err := cni.DecodeResult(conf.PrevResult, v)
	if err != nil {
		return nil
	}
	for _, ip := range r.IPs {
		list = append(list, ip.Address)
	}
	return list
}
