package rpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp/gob"
)

// The protocol of the reference plugin is Go's net/rpc over HTTP: CONNECT, and then values of encoding/gob. A request is its
// header and its argument, a reply likewise.
const (
	connectLine = "CONNECT /_goRPC_ HTTP/1.0"
	connected   = "HTTP/1.0 200 Connected to Go RPC"

	methodAllocate = "DHCP.Allocate"
	methodRelease  = "DHCP.Release"
)

// callReference makes a request of the reference plugin's daemon.
func callReference(ctx context.Context, socket string, q Request) (*Reply, error) {
	method := methodAllocate
	switch q.Verb {
	case Allocate, Check:
	case Release:
		method = methodRelease
	default:
		return nil, fmt.Errorf("%s: %w: %s", socket, ErrReference, q.Verb)
	}
	c, err := dial(socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer c.until(ctx)()
	r, err := c.callMethod(method, q)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", socket, errors.Join(context.Cause(ctx), err))
	}
	return r, nil
}

func (c *conn) callMethod(method string, q Request) (*Reply, error) {
	in := bufio.NewReader(c)
	if err := c.connect(in); err != nil {
		return nil, err
	}
	e, d := gob.NewEncoder(c), gob.NewDecoder(in)
	err := e.Encode("Request", gob.Field{Name: "ServiceMethod", Value: method}, gob.Field{Name: "Seq", Value: uint64(0)})
	if err != nil {
		return nil, err
	}
	err = e.Encode("CmdArgs", gob.Field{Name: "ContainerID", Value: q.Container}, gob.Field{Name: "Netns", Value: q.Netns},
		gob.Field{Name: "IfName", Value: q.IfName}, gob.Field{Name: "Args", Value: q.Args}, gob.Field{Name: "StdinData", Value: []byte(q.Config)})
	if err != nil {
		return nil, err
	}
	header, err := d.Decode()
	if err != nil {
		return nil, err
	}
	body, err := d.Decode()
	if err != nil {
		return nil, err
	}
	if text := header.Text("Error"); text != "" {
		return Fail(cni.Errorf(cni.CodeInternal, "%s", text)), nil
	}
	if method == methodRelease {
		return new(Reply), nil
	}
	return resultReply(body)
}

func (c *conn) connect(in *bufio.Reader) error {
	if _, err := c.Write([]byte(connectLine + "\n\n")); err != nil {
		return err
	}
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if first && string(line) != connected {
			return fmt.Errorf("unexpected answer of the daemon: %q", line)
		}
		if len(line) == 0 {
			return nil
		}
	}
}

// resultReply is the reply that the result of the reference plugin's daemon is.
func resultReply(s gob.Struct) (*Reply, error) {
	var r cni.Result
	for _, ip := range s.List("IPs") {
		address, err := prefixOf(ip.In("Address"))
		if err != nil {
			return nil, err
		}
		r.IPs = append(r.IPs, cni.IP{Address: address, Gateway: addrOf(ip.Data("Gateway"))})
	}
	for _, route := range s.List("Routes") {
		dst, err := prefixOf(route.In("Dst"))
		if err != nil {
			return nil, err
		}
		out := cni.Route{
			Dst: dst, GW: addrOf(route.Data("GW")),
			MTU: int(route.Int("MTU")), AdvMSS: int(route.Int("AdvMSS")), Priority: int(route.Int("Priority")),
		}
		if table := route.Int("Table"); table != 0 {
			out.Table = cni.Some(int(table))
		}
		if scope := route.Int("Scope"); scope != 0 {
			out.Scope = cni.Some(int(scope))
		}
		r.Routes = append(r.Routes, out)
	}
	encoded, err := r.Encode(cni.V110)
	return &Reply{Result: encoded}, err
}

func addrOf(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}

func prefixOf(s gob.Struct) (netip.Prefix, error) {
	ones, bits := net.IPMask(s.Data("Mask")).Size()
	a := addrOf(s.Data("IP"))
	if bits == 128 && a.Is4() && ones >= 96 {
		ones -= 96
	}
	p := netip.PrefixFrom(a, ones)
	if !p.IsValid() || bits == 0 {
		return p, fmt.Errorf("the daemon gave the address %x with the mask %x", s.Data("IP"), s.Data("Mask"))
	}
	return p, nil
}

// serveReference serves a client of the reference plugin, who has said CONNECT.
func (s *Server) serveReference(ctx context.Context, c *conn) error {
	for { // headers, of which there are none
		line, err := c.line(maxGreeting)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			break
		}
	}
	if _, err := c.Write([]byte(connected + "\n\n")); err != nil {
		return err
	}
	in := bufio.NewReader(c)
	d, e := gob.NewDecoder(in), gob.NewEncoder(c)
	for {
		header, err := d.Decode()
		if err != nil {
			return ended(err)
		}
		args, err := d.Decode()
		if err != nil {
			return err
		}
		if in.Buffered() > 0 {
			return errors.New("a request came before the answer to the one before")
		}
		if err := s.answerReference(ctx, c, e, header, args); err != nil {
			return err
		}
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
	}
}

// answerReference makes the request that a call of a method is.
func (s *Server) answerReference(ctx context.Context, c *conn, e *gob.Encoder, header, args gob.Struct) error {
	method := header.Text("ServiceMethod")
	q := &Request{
		Container: args.Text("ContainerID"), Netns: args.Text("Netns"), IfName: args.Text("IfName"), Args: args.Text("Args"),
		Config: json.RawMessage(args.Data("StdinData")),
	}
	var r *Reply
	switch method {
	case methodAllocate:
		q.Verb = Allocate
		r = s.handle(ctx, c, q)
	case methodRelease:
		q.Verb = Release
		r = s.handle(ctx, c, q)
	default:
		r = Fail(fmt.Errorf("rpc: can't find method %s", method))
	}
	text := ""
	if r.Error != nil {
		text = r.Error.Msg
	}
	seq, _ := header["Seq"].(uint64)
	err := e.Encode("Response", gob.Field{Name: "ServiceMethod", Value: method}, gob.Field{Name: "Seq", Value: seq}, gob.Field{Name: "Error", Value: text})
	if err != nil {
		return err
	}
	if r.Error != nil || q.Verb == Release {
		return e.Encode("Nothing")
	}
	result, err := cni.DecodeResult(r.Result, cni.V110)
	if err != nil {
		return err
	}
	return e.Encode("Result", resultFields(result)...)
}

// resultFields is a result as the reference plugin's daemon sends it.
func resultFields(r *cni.Result) []gob.Field {
	ips := gob.List{Of: ipFields(cni.IP{})}
	for _, ip := range r.IPs {
		ips.Items = append(ips.Items, ipFields(ip))
	}
	routes := gob.List{Of: routeFields(cni.Route{})}
	for _, route := range r.Routes {
		routes.Items = append(routes.Items, routeFields(route))
	}
	return []gob.Field{{Name: "IPs", Value: ips}, {Name: "Routes", Value: routes}}
}

func ipFields(ip cni.IP) gob.Object {
	return gob.Object{Name: "IPConfig", Fields: []gob.Field{
		{Name: "Address", Value: netFields(ip.Address)}, {Name: "Gateway", Value: ip.Gateway.AsSlice()},
	}}
}

func routeFields(r cni.Route) gob.Object {
	table, _ := r.Table.Get()
	scope, _ := r.Scope.Get()
	return gob.Object{Name: "Route", Fields: []gob.Field{
		{Name: "Dst", Value: netFields(r.Dst)}, {Name: "GW", Value: r.GW.AsSlice()},
		{Name: "MTU", Value: r.MTU}, {Name: "AdvMSS", Value: r.AdvMSS}, {Name: "Priority", Value: r.Priority},
		{Name: "Table", Value: table}, {Name: "Scope", Value: scope},
	}}
}

func netFields(p netip.Prefix) gob.Object {
	o := gob.Object{Name: "IPNet", Fields: []gob.Field{{Name: "IP", Value: []byte(nil)}, {Name: "Mask", Value: []byte(nil)}}}
	if p.IsValid() {
		o.Fields[0].Value, o.Fields[1].Value = p.Addr().AsSlice(), []byte(net.CIDRMask(p.Bits(), p.Addr().BitLen()))
	}
	return o
}

// ended is nil where a stream ends, or nothing came for a while.
func ended(err error) error {
	var timeout interface{ Timeout() bool }
	if errors.Is(err, io.EOF) || errors.As(err, &timeout) && timeout.Timeout() {
		return nil
	}
	return err
}
