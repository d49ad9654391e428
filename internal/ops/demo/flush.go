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

// rules are the entries of a rule set in the ruleset of the host.
func (p *play) rules(ctx context.Context, ruleSet *kernel.RuleSet) ([]string, error) {
	var rules []string
	err := change(ctx, p.host, func(s *kernel.Space) error {
		held, err := s.Rules.Held(ruleSet)
		for _, h := range held {
			rules = append(rules, h.Text)
		}
		return err
	})
	slices.Sort(rules) // the kernel has no order
	return rules, err
}

// allRules are those of everybody.
func (p *play) allRules(ctx context.Context) ([]string, error) {
	masquerading, err := p.rules(ctx, kernel.Masquerading)
	published, err2 := p.rules(ctx, kernel.Publishing)
	return append(masquerading, published...), errors.Join(err, err2)
}

// flush takes away the rules of all containers, as a firewall does that is started again, and shows that they are missed.
func (p *play) flush(ctx context.Context) error {
	var err error
	if p.lost, err = p.allRules(ctx); err != nil {
		return err
	}
	everybody := func(string) bool { return true }
	err = change(ctx, p.host, func(s *kernel.Space) error {
		_, err := s.Rules.Remove(kernel.Masquerading, everybody)
		_, err2 := s.Rules.Remove(kernel.Publishing, everybody)
		return errors.Join(err, err2)
	})
	if err != nil {
		return err
	}
	p.say("%d entries for masquerading and ports are gone", len(p.lost))
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

// restore has them put back, and shows that they are.
func (p *play) restore(ctx context.Context, do func(context.Context, []invoke.Call) error) error {
	passed, err := p.client.Repair(ctx, nil, do)
	for _, u := range passed {
		err = errors.Join(err, fmt.Errorf("%s was passed over: %w", u.Attachment, u.Err))
	}
	if err != nil {
		return err
	}
	rules, err := p.allRules(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(rules, p.lost) {
		return fmt.Errorf("rules: expected %s, found %s", strings.Join(p.lost, ", "), strings.Join(rules, ", "))
	}
	p.say("all %d entries are back", len(rules))
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
