package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// container is an empty network namespace, which a runtime would create before it calls CNI.
type container struct {
	name         string
	ns           *kernel.Namespace
	path         string
	capabilities map[string]json.RawMessage // that the runtime passes
	result       *cni.Result
	servers      []net.Listener
}

func newContainer(name string, capabilities map[string]json.RawMessage) (*container, error) {
	ns, err := kernel.NewNamespace()
	if err != nil {
		return nil, err
	}
	return &container{name: name, ns: ns, path: ns.Path(), capabilities: capabilities}, nil
}

// close stops the servers of a container and closes its namespace.
func (c *container) close() {
	if c == nil {
		return
	}
	for _, l := range c.servers {
		l.Close()
	}
	if c.ns != nil {
		c.ns.Close()
	}
	c.servers, c.ns = nil, nil
}

// serve answers each client with the container's name and the client's address, until the container
// is closed.
func (c *container) serve(ctx context.Context) error {
	// One listener for both families may lack IPv6: package net checks for IPv6 once, perhaps in a
	// namespace where lo is down.
	for _, network := range []string{"tcp4", "tcp6"} {
		err := c.ns.Run(func() error {
			l, err := new(net.ListenConfig).Listen(ctx, network, fmt.Sprintf(":%d", containerPort))
			if err == nil {
				c.servers = append(c.servers, l)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("server in %s: %w", c.name, err)
		}
	}
	for _, l := range c.servers {
		go c.answer(l)
	}
	return nil
}

// answer serves until the listener is closed.
func (c *container) answer(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		from, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		fmt.Fprintf(
			conn,
			"%s answers, it sees %s",
			c.name,
			from,
		) // the client reports a missing answer
		conn.Close()
	}
}

// inside lists the addresses and routes in the container.
func (c *container) inside(ctx context.Context) ([]string, error) {
	var left []string
	err := change(ctx, c.ns, func(s *kernel.Space) error {
		links, err := s.Links.All()
		if err != nil {
			return err
		}
		for _, l := range links {
			addrs, err := s.Addrs.Of(l)
			if err != nil {
				return err
			}
			for _, a := range addrs {
				left = append(left, a.String())
			}
		}
		routes, err := s.Routes.All(kernel.AllTables)
		for _, r := range routes {
			left = append(left, r.Dst.String())
		}
		return err
	})
	return left, err
}
