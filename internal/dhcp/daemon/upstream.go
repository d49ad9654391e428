package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/rpc"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
)

// UpstreamArgs is the argument of both methods of the upstream plugin's daemon. Package gob matches
// its fields with upstream's by name; net/rpc requires that it is exported.
type UpstreamArgs struct {
	ContainerID, Netns, IfName, Args string
	StdinData                        []byte
}

// UpstreamResult is the result of DHCP.Allocate.
type UpstreamResult struct {
	IPs    []upstreamIP
	Routes []upstreamRoute
}

type upstreamIP struct {
	Address net.IPNet
	Gateway net.IP
}

type upstreamRoute struct {
	Dst                   net.IPNet
	GW                    net.IP
	MTU, AdvMSS, Priority int
	Table, Scope          *int
}

// serveNetRPC serves the upstream plugin on a connection until it closes the connection, which also
// cancels a request in progress.
func serveNetRPC(ctx context.Context, c net.Conn, handle handler) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limited := &bounded{Conn: c, cancel: cancel}
	server := rpc.NewServer()
	methods := &service{ctx: ctx, conn: limited, handle: handle}
	if err := server.RegisterName("DHCP", methods); err != nil {
		panic(err) // the methods below have wrong signatures
	}
	server.ServeConn(limited)
}

// bounded limits the number of bytes that a client can send before it gets an answer.
type bounded struct {
	net.Conn
	cancel context.CancelFunc // called when the client closes the connection
	read   atomic.Int64       // bytes since the last answer
}

func (c *bounded) Read(b []byte) (int, error) {
	left := maxRequest - c.read.Load()
	if left <= 0 {
		c.cancel()
		return 0, errors.New("request is too long")
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), left)])
	c.read.Add(int64(n))
	if err != nil {
		c.cancel()
	}
	return n, err
}

func (c *bounded) Write(b []byte) (int, error) {
	c.read.Store(0)
	return c.Conn.Write(b)
}

// service has the methods that net/rpc calls, one at a time.
type service struct {
	ctx    context.Context // context of the connection, because net/rpc passes none
	conn   *bounded
	handle handler
	mu     sync.Mutex
}

// Allocate gets an address, or returns the address of the attachment.
func (s *service) Allocate(args *UpstreamArgs, result *UpstreamResult) error {
	r, err := s.call(dhcp.Allocate, args)
	if err != nil {
		return err
	}
	decoded, err := cni.DecodeResult(r.Result, cni.V110)
	if err == nil {
		*result = toResult(decoded)
	}
	return err
}

// Release releases the address.
func (s *service) Release(args *UpstreamArgs, _ *struct{}) error {
	_, err := s.call(dhcp.Release, args)
	return err
}

func (s *service) call(verb dhcp.Verb, args *UpstreamArgs) (*dhcp.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.conn.SetDeadline(time.Time{})
	defer func() { _ = s.conn.SetDeadline(time.Now().Add(patience)) }()
	r := s.handle(s.ctx, &dhcp.Request{
		Verb: verb, Container: args.ContainerID, Netns: args.Netns, IfName: args.IfName,
		Args: args.Args, Config: json.RawMessage(args.StdinData),
	})
	if r.Error != nil {
		return nil, errors.New(r.Error.Msg)
	}
	return r, nil
}

func toResult(r *cni.Result) (out UpstreamResult) {
	for _, ip := range r.IPs {
		out.IPs = append(out.IPs,
			upstreamIP{Address: toIPNet(ip.Address), Gateway: ip.Gateway.AsSlice()})
	}
	for _, r := range r.Routes {
		route := upstreamRoute{
			Dst: toIPNet(r.Dst), GW: r.GW.AsSlice(),
			MTU: r.MTU, AdvMSS: r.AdvMSS, Priority: r.Priority,
		}
		if table, ok := r.Table.Get(); ok {
			route.Table = &table
		}
		if scope, ok := r.Scope.Get(); ok {
			route.Scope = &scope
		}
		out.Routes = append(out.Routes, route)
	}
	return out
}

func toIPNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// CallUpstream sends a request to the upstream plugin's daemon. It ends with the process of the
// caller, see [dhcp.UpstreamCommand].
func CallUpstream(socket string, q dhcp.Request) (*dhcp.Reply, error) {
	c, err := rpc.DialHTTP("unix", socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	args := &UpstreamArgs{
		ContainerID: q.Container, Netns: q.Netns, IfName: q.IfName, Args: q.Args,
		StdinData: q.Config,
	}
	var result UpstreamResult
	if q.Verb == dhcp.Release {
		err = c.Call("DHCP.Release", args, new(struct{}))
	} else {
		err = c.Call("DHCP.Allocate", args, &result)
	}
	var answered rpc.ServerError
	if errors.As(err, &answered) {
		return dhcp.Fail(cni.Errorf(cni.CodeInternal, "%s", answered)), nil
	}
	if err != nil || q.Verb == dhcp.Release {
		return new(dhcp.Reply), err
	}
	decoded, err := fromResult(result)
	if err != nil {
		return nil, err
	}
	encoded, err := decoded.Encode(cni.V110)
	return &dhcp.Reply{Result: encoded}, err
}

func fromResult(r UpstreamResult) (*cni.Result, error) {
	out := new(cni.Result)
	for _, ip := range r.IPs {
		address, err := fromIPNet(ip.Address)
		if err != nil {
			return nil, err
		}
		out.IPs = append(out.IPs, cni.IP{Address: address, Gateway: fromIP(ip.Gateway)})
	}
	for _, r := range r.Routes {
		dst, err := fromIPNet(r.Dst)
		if err != nil {
			return nil, err
		}
		route := cni.Route{
			Dst: dst, GW: fromIP(r.GW), MTU: r.MTU, AdvMSS: r.AdvMSS, Priority: r.Priority,
		}
		if r.Table != nil {
			route.Table = cni.Some(*r.Table)
		}
		if r.Scope != nil {
			route.Scope = cni.Some(*r.Scope)
		}
		out.Routes = append(out.Routes, route)
	}
	return out, nil
}

func fromIP(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func fromIPNet(n net.IPNet) (netip.Prefix, error) {
	ones, bits := n.Mask.Size()
	a := fromIP(n.IP)
	if bits == 128 && a.Is4() && ones >= 96 {
		ones -= 96
	}
	p := netip.PrefixFrom(a, ones)
	if !p.IsValid() || bits == 0 {
		return p, fmt.Errorf("upstream's DHCP daemon returned the address %x with the mask %x",
			n.IP, n.Mask)
	}
	return p, nil
}
