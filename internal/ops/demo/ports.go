package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

const (
	hostPort      = 8080
	containerPort = 80
	askFor        = 5 * time.Second
)

// published returns the capability argument for the port of web.
func published() map[string]json.RawMessage {
	ports := fmt.Sprintf(
		`[{"hostPort": %d, "containerPort": %d, "protocol": "tcp"}]`,
		hostPort,
		containerPort,
	)
	return map[string]json.RawMessage{"portMappings": json.RawMessage(ports)}
}

// ask returns the answer of a server to a client in a namespace.
func ask(
	ctx context.Context,
	from *kernel.Namespace,
	server netip.AddrPort,
) (answer string, err error) {
	end := time.Now().Add(askFor)
	err = from.Run(func() error {
		conn, err := (&net.Dialer{Deadline: end}).DialContext(ctx, "tcp", server.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(end); err != nil {
			return err
		}
		text, err := io.ReadAll(conn)
		answer = string(text)
		return err
	})
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil && answer == "":
		err = fmt.Errorf("%s does not answer", server)
	}
	return answer, err
}

// ports connects to the published port from the host, the other container, and the container
// itself.
func (p *play) ports(ctx context.Context) error {
	if err := p.web.serve(ctx); err != nil {
		return err
	}
	gateway4, gateway6 := p.web.result.IPs[0].Gateway, p.web.result.IPs[1].Gateway
	for _, client := range []struct {
		name string
		from *kernel.Namespace
		to   netip.Addr
	}{
		{"the host", p.host, netip.AddrFrom4([4]byte{127, 0, 0, 1})},
		{"the host", p.host, gateway4},
		{"the host", p.host, gateway6},
		{"db", p.db.ns, gateway4},
		{"db", p.db.ns, gateway6},
		{"web itself", p.web.ns, gateway4},
		{"web itself", p.web.ns, gateway6},
	} {
		server := netip.AddrPortFrom(client.to, hostPort)
		answer, err := ask(ctx, client.from, server)
		if err != nil {
			return fmt.Errorf("from %s: %w", client.name, err)
		}
		p.say("%-10s to %-18s %s", client.name, server.String()+":", answer)
	}
	return nil
}

// portConflict requests the port of web for another container, and checks that ADD leaves nothing
// behind.
func (p *play) portConflict(ctx context.Context) error {
	other, err := newContainer("other", published())
	if err != nil {
		return err
	}
	defer other.close()
	err = p.attach(ctx, other)
	if err == nil {
		return fmt.Errorf("ADD has given host port %d to two containers", hostPort)
	}
	if cni.CodeOf(err) != session.CodeInUse {
		return err
	}
	p.say("ADD: %v", err)
	left, err := other.inside(ctx)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("left in other: %v", left)
	}
	return err
}
