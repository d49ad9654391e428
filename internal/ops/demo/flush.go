package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/invoke"
)

// containerRules are the rule sets with elements of the containers.
func containerRules() []*kernel.RuleSet {
	return []*kernel.RuleSet{kernel.Masquerading, kernel.Publishing}
}

// rules lists the elements of rule sets on the host, sorted.
func (p *play) rules(ctx context.Context, ruleSets ...*kernel.RuleSet) (rules []string, err error) {
	err = change(ctx, p.host, func(s *kernel.Space) error {
		for _, ruleSet := range ruleSets {
			held, err := s.Rules.Held(ruleSet)
			if err != nil {
				return err
			}
			for _, h := range held {
				rules = append(rules, h.Text)
			}
		}
		return nil
	})
	slices.Sort(rules)
	return rules, err
}

// flush removes the rules of all containers, as the restart of a firewall does, and shows that they
// are missing.
func (p *play) flush(ctx context.Context) error {
	var err error
	if p.lost, err = p.rules(ctx, containerRules()...); err != nil {
		return err
	}
	err = change(ctx, p.host, func(s *kernel.Space) error {
		for _, ruleSet := range containerRules() {
			if _, err := s.Rules.Remove(ruleSet, func(string) bool { return true }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.say("deleted %d elements for masquerading and ports", len(p.lost))
	_, err = p.askFromDB(ctx)
	if err == nil {
		return errors.New("the port leads to web without its rules")
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	p.say("from db: %v", err)
	return p.checkFails(ctx, "rules are missing")
}

// restore repairs the rules with do, and shows that they work.
func (p *play) restore(ctx context.Context, do func(context.Context, []invoke.Call) error) error {
	skipped, err := p.client.Repair(ctx, nil, do)
	for _, u := range skipped {
		err = errors.Join(err, fmt.Errorf("skipped %s: %w", u.Attachment, u.Err))
	}
	if err != nil {
		return err
	}
	rules, err := p.rules(ctx, containerRules()...)
	if err != nil {
		return err
	}
	if !slices.Equal(rules, p.lost) {
		return fmt.Errorf(
			"rules: expected %s, found %s",
			strings.Join(p.lost, ", "),
			strings.Join(rules, ", "),
		)
	}
	p.say("restored all %d elements", len(rules))
	if err := p.check(ctx); err != nil {
		return err
	}
	answer, err := p.askFromDB(ctx)
	if err != nil {
		return err
	}
	p.say("from db: %s", answer)
	return nil
}

func (p *play) askFromDB(ctx context.Context) (string, error) {
	return ask(ctx, p.db.ns, netip.AddrPortFrom(p.web.result.IPs[0].Gateway, hostPort))
}
