package nft

import (
	"context"
	"fmt"
	"slices"
)

// concernsOfAll returns every concern of Tenon's tables.
func concernsOfAll() []*Concern {
	return []*Concern{Masquerading, Dropping, Filtering, PortIsolation, Guarding, Publishing}
}

// All returns the elements of Tenon's tables that have an owner, by the name of their concern. It takes no lock.
func (c *Conn) All() (map[string][]Held, error) {
	all := map[string][]Held{}
	for _, concern := range concernsOfAll() {
		list, err := c.Owned(concern)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", concern, err)
		}
		list = slices.DeleteFunc(list, func(h Held) bool { return h.Comment == "" })
		if len(list) > 0 {
			all[concern.name] = list
		}
	}
	return all, nil
}

// Tables returns the tables of Tenon that exist.
func (c *Conn) Tables() (tables []Table, err error) {
	for _, t := range []Table{table, bridgeTable} {
		there, err := c.messages.HasTable(t)
		if err != nil {
			return nil, explain(err, lackingQuestion)
		}
		if there {
			tables = append(tables, t)
		}
	}
	return tables, nil
}

// Erase removes Tenon's tables with everything in them, in one transaction, and returns them. If allowed reports
// false for the owner of any element, it changes nothing and returns these elements.
func (c *Conn) Erase(ctx context.Context, allowed func(tag string) bool) (tables []Table, refused []Held, err error) {
	err = c.tried(ctx, func() error {
		tables, refused = nil, nil
		all, err := c.All()
		if err != nil {
			return err
		}
		for _, list := range all {
			for _, h := range list {
				if !allowed(h.Comment) {
					refused = append(refused, h)
				}
			}
		}
		if refused != nil {
			return nil
		}
		if tables, err = c.Tables(); err != nil {
			return err
		}
		var p plan
		for _, t := range tables {
			p.DeleteTable(t)
		}
		return c.send(&p)
	})
	return tables, refused, err
}
