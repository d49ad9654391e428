package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

// prove lists everything that could be left, and returns an error if something is.
func (p *play) prove(ctx context.Context) error {
	var errs []error
	for _, kind := range []struct {
		name string
		list func(context.Context) ([]string, error)
	}{
		{"links on the host, except lo and the shared bridge", p.links},
		{"masqueraded addresses on the host", func(ctx context.Context) ([]string, error) { return p.rules(ctx, kernel.Masquerading) }},
		{"host ports and their hairpin rules", func(ctx context.Context) ([]string, error) { return p.rules(ctx, kernel.Publishing) }},
		{"reserved addresses", p.reserved},
		{"recorded attachments", p.recorded},
		{"addresses and routes in web", p.web.inside},
	} {
		left, err := kind.list(ctx)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			p.say("%s: none", kind.name)
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %s", kind.name, strings.Join(left, ", ")))
	}
	return errors.Join(errs...)
}

func (p *play) links(ctx context.Context) ([]string, error) {
	var left []string
	err := change(ctx, p.host, func(s *kernel.Space) error {
		links, err := s.Links.All()
		for _, l := range links {
			if l.Name != "lo" && l.Name != bridge {
				left = append(left, l.Name)
			}
		}
		return err
	})
	return left, err
}

func (p *play) reserved(ctx context.Context) ([]string, error) {
	pools, err := hostlocal.Pools(ctx, []*cni.List{p.network.List})
	var left []string
	for _, pool := range pools {
		if pool.Network != p.network.Name {
			continue
		}
		for _, l := range pool.Leases {
			left = append(left, l.String())
		}
	}
	return left, err
}

func (p *play) recorded(context.Context) ([]string, error) {
	records, err := p.client.List()
	var left []string
	for _, r := range records {
		left = append(left, r.Attachment.String())
	}
	return left, err
}
