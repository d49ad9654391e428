package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// state is the directory of the reservations: NETWORK/ADDRESS contains the attachment.
const state = "/var/lib/cni/pool"

// locked runs f while no other process changes the reservations of the network.
func (c *call) locked(f func(dir string) error) error {
	dir := filepath.Join(state, c.conf.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fail(codeIO, "%v", err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		return fail(codeIO, "%v", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fail(codeIO, "lock %s: %v", dir, err)
	}
	return f(dir)
}

// reservations returns the holders of addresses.
func reservations(dir string) (map[string]attachment, error) {
	entries, err := os.ReadDir(dir)
	all := map[string]attachment{}
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err != nil {
			continue
		}
		var a attachment
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err == nil {
			err = json.Unmarshal(text, &a)
		}
		if err != nil {
			a = attachment{} // has no holder, but is not free
		}
		all[e.Name()] = a
	}
	return all, err
}

// addresses returns the subnet and the addresses of the pool, without the gateway.
func (c *call) addresses() (subnet netip.Prefix, list []netip.Addr, err error) {
	if c.conf.IPAM == nil {
		return subnet, nil, fail(codeConfig, "ipam is missing")
	}
	subnet, err = netip.ParsePrefix(c.conf.IPAM.Subnet)
	if err != nil {
		return subnet, nil, fail(codeConfig, "ipam.subnet: %v", err)
	}
	var last netip.Addr
	if c.conf.IPAM.Last != "" {
		if last, err = netip.ParseAddr(c.conf.IPAM.Last); err != nil {
			return subnet, nil, fail(codeConfig, "ipam.last: %v", err)
		}
	}
	subnet = subnet.Masked()
	for a := subnet.Addr().Next().Next(); subnet.Contains(a.Next()); a = a.Next() {
		list = append(list, a)
		if a == last {
			break
		}
	}
	return subnet, list, nil
}

func poolAdd(c *call) (*result, error) {
	subnet, all, err := c.addresses()
	if err != nil {
		return nil, err
	}
	var r *result
	err = c.locked(func(dir string) error {
		taken, err := reservations(dir)
		if err != nil {
			return fail(codeIO, "%v", err)
		}
		own := attachment{c.id, c.ifname}
		for a, holder := range taken {
			if holder == own {
				return fail(codeOther, "container %s has the address %s", c.id, a)
			}
		}
		for _, a := range all {
			if _, used := taken[a.String()]; used {
				continue
			}
			text, _ := json.Marshal(own)
			path := filepath.Join(dir, a.String())
			if err := os.WriteFile(path, text, 0o644); err != nil {
				_ = os.Remove(path)
				return fail(codeIO, "%v", err)
			}
			gateway := subnet.Addr().Next()
			r = &result{IPs: []ip{{Address: netip.PrefixFrom(a, subnet.Bits()), Gateway: &gateway}},
				Routes: []route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}}}
			return nil
		}
		return fail(codeOther, "no address is free in %s", subnet)
	})
	return r, err
}

func poolDel(c *call) error {
	return c.locked(func(dir string) error {
		taken, err := reservations(dir)
		errs := []error{err}
		for a, holder := range taken {
			if holder == (attachment{c.id, c.ifname}) {
				errs = append(errs, release(dir, a))
			}
		}
		return errors.Join(errs...)
	})
}

func release(dir, address string) error {
	err := os.Remove(filepath.Join(dir, address))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func poolCheck(c *call) error {
	return c.locked(func(dir string) error {
		taken, err := reservations(dir)
		if err != nil {
			return err
		}
		for _, holder := range taken {
			if holder == (attachment{c.id, c.ifname}) {
				return nil
			}
		}
		return fail(codeOther, "container %s has no address", c.id)
	})
}

func poolStatus(c *call) error {
	_, all, err := c.addresses()
	if err != nil {
		return err
	}
	return c.locked(func(dir string) error {
		taken, err := reservations(dir)
		if err != nil {
			return err
		}
		for _, a := range all {
			if _, used := taken[a.String()]; !used {
				return nil
			}
		}
		return fail(codeUnavailable, "all %d addresses are in use", len(all))
	})
}

func poolGC(c *call) error {
	valid, err := c.conf.valid()
	if err != nil {
		return err
	}
	return c.locked(func(dir string) error {
		taken, err := reservations(dir)
		errs := []error{err}
		for _, a := range slices.Sorted(maps.Keys(taken)) { // so that a replay shows the same error
			holder := taken[a]
			if !slices.Contains(valid, holder) {
				if err := release(dir, a); err != nil {
					errs = append(errs, fmt.Errorf("release %s: %w", a, err))
				}
			}
		}
		return errors.Join(errs...)
	})
}
