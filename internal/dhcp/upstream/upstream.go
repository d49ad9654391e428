// Package upstream speaks the protocol of the upstream plugin dhcp and its daemon, which is net/rpc
// over HTTP: as a server for that plugin, and as a client of that daemon. Plugins do not link it,
// as net/rpc brings in net/http and encoding/gob.
package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	netrpc "net/rpc"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp/rpc"
)

// CmdArgs is the argument of both methods. Package gob matches its fields with the upstream fields
// by name.
type CmdArgs struct {
	ContainerID, Netns, IfName, Args string
	StdinData                        []byte
}

// Result is the result of DHCP.Allocate.
type Result struct {
	IPs    []IP
	Routes []Route
}

// IP is an address of a [Result].
type IP struct {
	Address net.IPNet
	Gateway net.IP
}

// Route is a route of a [Result].
type Route struct {
	Dst                   net.IPNet
	GW                    net.IP
	MTU, AdvMSS, Priority int
	Table, Scope          *int
}

const (
	patience = 10 * time.Second // for the next request, and for writing an answer
	maxBytes = 4 << 20          // of a request
)

// Serve answers the requests on a connection until the client closes it, which also cancels a
// request in progress.
func Serve(ctx context.Context, c net.Conn, handle func(context.Context, *rpc.Request) *rpc.Reply) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limited := &conn{Conn: c, cancel: cancel}
	server := netrpc.NewServer()
	methods := &service{ctx: ctx, conn: limited, handle: handle}
	if err := server.RegisterName("DHCP", methods); err != nil {
		panic(err) // the methods below are wrong
	}
	server.ServeConn(limited)
}

// conn bounds what a client sends before it is answered.
type conn struct {
	net.Conn
	cancel context.CancelFunc // called when the client has hung up
	read   atomic.Int64       // bytes since the last answer
}

func (c *conn) Read(b []byte) (int, error) {
	left := maxBytes - c.read.Load()
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

func (c *conn) Write(b []byte) (int, error) {
	c.read.Store(0)
	return c.Conn.Write(b)
}

// service has the methods that net/rpc calls, one at a time.
type service struct {
	ctx    context.Context // of the connection: net/rpc passes none
	conn   *conn
	handle func(context.Context, *rpc.Request) *rpc.Reply
	mu     sync.Mutex
}

// Allocate gets an address, or returns the one that the attachment has.
func (s *service) Allocate(args *CmdArgs, result *Result) error {
	r, err := s.call(rpc.Allocate, args)
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
func (s *service) Release(args *CmdArgs, _ *struct{}) error {
	_, err := s.call(rpc.Release, args)
	return err
}

func (s *service) call(verb rpc.Verb, args *CmdArgs) (*rpc.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.conn.SetDeadline(time.Time{})
	defer func() { _ = s.conn.SetDeadline(time.Now().Add(patience)) }()
	r := s.handle(s.ctx, &rpc.Request{
		Verb: verb, Container: args.ContainerID, Netns: args.Netns, IfName: args.IfName,
		Args: args.Args, Config: json.RawMessage(args.StdinData),
	})
	if r.Error != nil {
		return nil, errors.New(r.Error.Msg)
	}
	return r, nil
}

func toResult(r *cni.Result) (out Result) {
	for _, ip := range r.IPs {
		out.IPs = append(out.IPs, IP{Address: toIPNet(ip.Address), Gateway: ip.Gateway.AsSlice()})
	}
	for _, r := range r.Routes {
		route := Route{
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

// Call makes a request of the upstream plugin's daemon. It ends with the process of the caller, see
// [program.Call].
func Call(socket string, q rpc.Request) (*rpc.Reply, error) {
	c, err := netrpc.DialHTTP("unix", socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	args := &CmdArgs{
		ContainerID: q.Container, Netns: q.Netns, IfName: q.IfName, Args: q.Args, StdinData: q.Config,
	}
	var result Result
	if q.Verb == rpc.Release {
		err = c.Call("DHCP.Release", args, new(struct{}))
	} else {
		err = c.Call("DHCP.Allocate", args, &result)
	}
	var answered netrpc.ServerError
	if errors.As(err, &answered) {
		return rpc.Fail(cni.Errorf(cni.CodeInternal, "%s", answered)), nil
	}
	if err != nil || q.Verb == rpc.Release {
		return new(rpc.Reply), err
	}
	decoded, err := fromResult(result)
	if err != nil {
		return nil, err
	}
	encoded, err := decoded.Encode(cni.V110)
	return &rpc.Reply{Result: encoded}, err
}

func fromResult(r Result) (*cni.Result, error) {
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
		return p, fmt.Errorf("the daemon gave the address %x with the mask %x", n.IP, n.Mask)
	}
	return p, nil
}
