package nft

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Apply makes the elements of requests exist, in one transaction, and removes elements of other
// owners with the same subjects. If a requested subject has elements already, Apply also removes
// other elements of the same owners in that rule set. A request that conflicts with another owner
// is left out, and the error names that owner. undo reverts the changes, except where another owner
// has changed the same element since; it is nil if every request conflicts.
func (c *Conn) Apply(
	ctx context.Context, requests ...Request,
) (undo func(context.Context) error, err error) {
	return c.apply(ctx, requests, nil)
}

// Restore is Apply, and returns for each request what [Conn.Missing] would have returned in the
// instant before.
func (c *Conn) Restore(
	ctx context.Context, requests ...Request,
) (missing [][]Held, undo func(context.Context) error, err error) {
	undo, err = c.apply(ctx, requests, func(have *state) { missing = missingIn(have, requests) })
	return missing, undo, err
}

// apply calls look, unless it is nil, with the state that the transaction changes; it may do so
// several times, of which the last one counts.
func (c *Conn) apply(
	ctx context.Context, requests []Request, look func(*state),
) (undo func(context.Context) error, err error) {
	for _, r := range requests {
		if err := checkOwner(r.Owner); err != nil {
			return nil, err
		}
	}
	var granted []Request
	var conflicts []error
	var done changes
	err = c.transact(ctx, func(have *state) (changes, error) {
		done = changes{}
		granted, conflicts = resolve(requests, have)
		for _, rs := range ruleSetsOf(granted...) {
			next := diff(rs, granted, have)
			if have.err != nil {
				return changes{}, fmt.Errorf("%s: %w", rs, have.err)
			}
			done.builds = append(done.builds, next.builds...)
			done.sets = append(done.sets, next.sets...)
		}
		if look != nil {
			look(have)
		}
		return done, nil
	})
	if err != nil || len(granted) == 0 {
		return nil, errors.Join(append(conflicts, err)...)
	}
	return func(ctx context.Context) error {
		return c.transact(ctx, func(have *state) (changes, error) {
			return inverse(done.sets, have), nil
		})
	}, errors.Join(conflicts...)
}

// Remove removes each element of a rule set with a matching owner, in one transaction, and returns
// them. If first is given, Remove does nothing unless that element exists with an owner that
// matches, which takes one lookup.
func (c *Conn) Remove(
	ctx context.Context, rs *RuleSet, match func(owner string) bool, first *Element,
) (removed []Held, err error) {
	err = c.transact(ctx, func(have *state) (ch changes, _ error) {
		ch, removed = removal(rs, match, first, have)
		return ch, nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", rs, err)
	}
	return removed, nil
}

// attempts is the number of tries while other processes change the ruleset.
const attempts = 5

// retry calls fn while it holds the lock of the namespace. It calls fn again if a process that does
// not take the lock has changed the ruleset since fn read it: an object no longer exists (ENOENT),
// or a new rule leads to a chain that fn deletes (EBUSY).
func (c *Conn) retry(ctx context.Context, fn func() error) error {
	return c.locked(ctx, func() (err error) {
		for range attempts {
			if err = fn(); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EBUSY) {
				return err
			}
		}
		return err
	})
}

// transact commits the changes that plan returns, which retry may call several times.
func (c *Conn) transact(ctx context.Context, plan func(*state) (changes, error)) error {
	return c.retry(ctx, func() error {
		have := c.state()
		ch, err := plan(have)
		if err == nil {
			err = have.err
		}
		if err != nil {
			return err
		}
		var t nftmsg.Transaction
		ch.addTo(&t)
		span := ch.span(ctx, &t)
		err = c.commit(&t)
		span.End(err)
		return err
	})
}

// commit sends a transaction, unless it is empty.
func (c *Conn) commit(t *nftmsg.Transaction) error {
	err := c.messages.Commit(t)
	if errors.Is(err, unix.ENFILE) {
		return fmt.Errorf("a set of the nftables table tenon is full: %w", err)
	}
	return explain(err, lackingBuild)
}

func (c changes) addTo(t *nftmsg.Transaction) {
	for _, b := range c.builds {
		b.addTo(t)
	}
	for _, ch := range c.sets {
		if !ch.empty() {
			ch.addTo(t)
		}
	}
}

func (b build) addTo(t *nftmsg.Transaction) {
	t.AddTable(b.table)
	for _, ch := range b.chains {
		if b.replace {
			ch.deleteFrom(t)
		}
		t.AddChain(ch.Chain)
		t.FlushChain(ch.Chain)
	}
	for _, set := range b.sets {
		if _, exists := b.kept[set.Name]; exists {
			t.DeleteSet(set.Set)
		}
	}
	for i, set := range b.sets {
		made := set.Set
		if i == 0 {
			made.Comment = b.version
		}
		t.AddSet(made)
		t.AddElements(set.Set, b.kept[set.Name])
		t.AddElements(set.Set, b.fresh[set.Name])
	}
	for _, ch := range b.chains {
		ch.addRules(t)
	}
}

func (ch change) addTo(t *nftmsg.Transaction) {
	for _, target := range ch.fill {
		t.AddChain(target.Chain)
		t.FlushChain(target.Chain)
		target.addRules(t)
	}
	t.DeleteElements(ch.set.Set, ch.del)
	t.AddElements(ch.set.Set, ch.add)
	for _, target := range ch.drop {
		t.FlushChain(target.Chain)
		t.DeleteChain(target.Chain)
	}
}

// deleteFrom deletes a chain if it exists. No rule may jump to the chain.
func (ch chain) deleteFrom(t *nftmsg.Transaction) {
	// Without a hook the message matches the existing chain, or creates one to delete.
	plain := nftmsg.Chain{Table: ch.Table, Name: ch.Name}
	t.AddChain(plain)
	t.FlushChain(plain)
	t.DeleteChain(plain)
}

func (ch chain) addRules(t *nftmsg.Transaction) {
	for _, rule := range ch.rules {
		t.AddRule(ch.Chain, rule)
	}
}
