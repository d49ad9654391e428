package main

import "slices"

func (c *call) label() string {
	if c.conf.Label != "" {
		return c.conf.Label
	}
	return "marked"
}

func markAdd(c *call) (*result, error) {
	r, err := c.previous()
	if err != nil {
		return nil, err
	}
	if _, err := c.inside("link", "set", "dev", c.ifname, "alias", c.label()); err != nil {
		return nil, err
	}
	return r, nil
}

func markDel(c *call) error {
	if c.foreignNetns() != nil {
		return nil // the container has ended, and its interface with it
	}
	links, err := decodeLinks(c.inside("-j", "link", "show", "dev", c.ifname))
	if err != nil || links[0].Alias != c.label() {
		return nil
	}
	_, err = c.inside("link", "set", "dev", c.ifname, "alias", "")
	return err
}

func markCheck(c *call) error {
	r, err := c.previous()
	if err != nil {
		return err
	}
	if len(r.Interfaces) > 0 && !slices.ContainsFunc(r.Interfaces, func(i iface) bool { return i.Name == c.ifname }) {
		return fail(codeConfig, "prevResult lacks interface %s", c.ifname)
	}
	links, err := decodeLinks(c.inside("-j", "link", "show", "dev", c.ifname))
	if err != nil || links[0].Alias != c.label() {
		return fail(codeOther, "interface %s lacks the label %q", c.ifname, c.label())
	}
	return nil
}
