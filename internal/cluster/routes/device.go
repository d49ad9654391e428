package routes

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// ErrForeignDevice reports that a device of another owner has the name of a tunnel.
var ErrForeignDevice = errors.New("the device does not belong to the cluster agent")

// device describes a wanted tunnel.
type device struct {
	name  string
	mac   net.HardwareAddr
	mtu   int // bytes; 0 keeps the present one
	vxlan kernel.VXLAN
}

func (o *Options) deviceName(f family) string {
	if f == ip6 {
		return o.Device + "6"
	}
	return o.Device
}

// device returns the tunnel over a family of underlay.
func (p *plan) device(f family) device {
	o := p.options
	d := device{
		name: o.deviceName(f), mac: p.own.MAC,
		vxlan: kernel.VXLAN{VNI: o.VNI, Port: o.Port, Local: o.own(f)},
	}
	if mtu := p.facts.mtu(p.facts.own[f]); mtu > 0 {
		d.mtu = mtu - f.overhead()
	} else {
		d.mtu = p.report.MTU
	}
	return d
}

// ours reports whether a link is a tunnel of this package, of any cluster.
func ours(l kernel.Link) bool {
	return l.Kind == kernel.KindVXLAN && strings.HasPrefix(l.Alias, aliasPrefix)
}

// unfinished reports whether a link is a tunnel that a process created and could not label any
// more. The label is the second step; a device in use by others is up, or has one.
func (o *Options) unfinished(l kernel.Link) bool {
	named := l.Name == o.deviceName(ip4) || l.Name == o.deviceName(ip6)
	return named && l.Kind == kernel.KindVXLAN && l.Alias == "" && !l.Up && l.VXLAN != nil &&
		!l.VXLAN.Learning && l.VXLAN.VNI == o.VNI && l.VXLAN.Port == o.Port
}

// ensure finds or creates the device of a family, configures it and sets it up.
func (a *application) ensure(f family, d device) (kernel.Link, error) {
	l, err := a.host.Links.ByName(d.name)
	if err == nil {
		switch {
		case ours(l) && l.Alias != alias(a.options.Cluster),
			!ours(l) && !a.options.unfinished(l):
			return kernel.Link{}, fmt.Errorf("link %q (%s, alias %q): %w", l.Name, l.Kind, l.Alias,
				ErrForeignDevice)
		case !ours(l), *l.VXLAN != d.vxlan: // the kernel changes neither
			if err := a.count(a.host.Links.Delete(l)); err != nil {
				return kernel.Link{}, err
			}
			err = kernel.ErrNoLink
		}
	}
	if errors.Is(err, kernel.ErrNoLink) {
		l, err = a.create(d)
	}
	if err != nil {
		return kernel.Link{}, err
	}
	return a.configure(l, d)
}

func (a *application) create(d device) (kernel.Link, error) {
	l, err := a.host.Links.Add(kernel.NewLink{
		Name: d.name, Kind: kernel.KindVXLAN, Alias: alias(a.options.Cluster),
		MAC: d.mac, MTU: d.mtu, VXLAN: d.vxlan,
	})
	if errors.Is(err, unix.EEXIST) {
		err = fmt.Errorf("%w; another device may use VNI %d and port %d", err, d.vxlan.VNI,
			d.vxlan.Port)
	}
	return l, a.count(err)
}

// configure sets the attributes that can change.
func (a *application) configure(l kernel.Link, d device) (kernel.Link, error) {
	var errs []error
	if !slices.Equal(l.MAC, d.mac) {
		errs = append(errs, a.count(a.host.Links.SetMAC(l, d.mac)))
	}
	if d.mtu != 0 && l.MTU != d.mtu {
		errs = append(errs, a.count(a.host.Links.SetMTU(l, d.mtu)))
		l.MTU = d.mtu
	}
	errs = append(errs, a.host.Sysctl.Ensure(settings(d.name)), a.checksums(l))
	if !l.Up {
		err := a.count(a.host.Links.Up(l))
		if errors.Is(err, unix.EADDRINUSE) {
			err = fmt.Errorf("%w: UDP port %d is in use; choose another port on all nodes", err,
				d.vxlan.Port)
		}
		errs = append(errs, err)
	}
	l.Up = true
	return l, errors.Join(errs...)
}

// settings returns the kernel settings of a tunnel. They permit asymmetric routes, forward packets,
// turn router advertisements and duplicate address detection off, and turn IPv6 on even if new
// links start without it.
func settings(device string) (list []kernel.Setting) {
	for _, s := range []struct{ key, value string }{
		{"net/ipv4/conf/%/rp_filter", "2"},
		{"net/ipv4/conf/%/forwarding", "1"},
		{"net/ipv4/conf/%/accept_redirects", "0"},
		{"net/ipv4/conf/%/send_redirects", "0"},
		{"net/ipv6/conf/%/accept_ra", "0"},
		{"net/ipv6/conf/%/accept_redirects", "0"},
		{"net/ipv6/conf/%/accept_dad", "0"},
		{"net/ipv6/conf/%/disable_ipv6", "0"},
		{"net/ipv6/conf/%/forwarding", "1"},
	} {
		key := strings.Replace(s.key, "%", device, 1)
		list = append(list, kernel.Setting{Key: key, Value: s.value,
			Optional: strings.HasPrefix(key, "net/ipv6")})
	}
	return list
}

func (a *application) checksums(l kernel.Link) error {
	if !a.options.NoChecksumOffload {
		return nil
	}
	changed, err := a.host.Links.EnsureTxChecksum(l, false)
	if changed {
		a.changes++
	}
	return err
}
