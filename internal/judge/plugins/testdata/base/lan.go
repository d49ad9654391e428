package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// command runs a program and returns its output.
func command(args ...string) (string, error) {
	if args[0] == "nft" { // while others change the rules, nft reads them again and again
		self, err := os.Open("/proc/self/exe")
		if err != nil {
			return "", err
		}
		defer self.Close()
		if err := syscall.Flock(int(self.Fd()), syscall.LOCK_EX); err != nil {
			return "", err
		}
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %s", strings.Join(args, " "), strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// inside runs ip(8) in the namespace of the container.
func (c *call) inside(args ...string) (string, error) {
	return command(append([]string{"nsenter", "--net=" + c.netns, "ip"}, args...)...)
}

// delegate calls the IPAM plugin.
func (c *call) delegate(verb string) ([]byte, error) {
	var path string
	for _, dir := range filepath.SplitList(c.path) {
		candidate := filepath.Join(dir, c.conf.IPAM.Type)
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() {
			path = candidate
			break
		}
	}
	if path == "" || strings.Contains(c.conf.IPAM.Type, "/") {
		return nil, fail(codeConfig, "IPAM plugin %q is not in %s", c.conf.IPAM.Type, c.path)
	}
	cmd := exec.Command(path)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(c.stdin), os.Stderr
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "CNI_COMMAND=")
	}), "CNI_COMMAND="+verb)
	out, err := cmd.Output()
	if err != nil {
		var f failure
		if json.Unmarshal(out, &f) == nil && f.Code != 0 {
			return nil, &f
		}
		return nil, fmt.Errorf("IPAM plugin %s: %w: %s", c.conf.IPAM.Type, err, out)
	}
	return out, nil
}

// hasIPAM reports whether the configuration names an IPAM plugin.
func (c *call) hasIPAM() bool { return c.conf.IPAM != nil && c.conf.IPAM.Type != "" }

func (c *call) bridge() string {
	if c.conf.Bridge != "" {
		return c.conf.Bridge
	}
	return "lan0"
}

// prefix begins the names of the interfaces and tables of the network on the host.
func (c *call) prefix() string { return fmt.Sprintf("lan%.3x", sha256.Sum256([]byte(c.conf.Name))) }

// hostName returns the name of the interface and of the table on the host, which follows from the
// network and the attachment.
func (c *call) hostName(a attachment) string {
	return c.prefix() + fmt.Sprintf("%.3x", sha256.Sum256([]byte(a.ContainerID+"/"+a.IfName)))
}

func (c *call) host() string { return c.hostName(attachment{c.id, c.ifname}) }

func lanAdd(c *call) (*result, error) {
	r, err := c.previous()
	if err != nil {
		return nil, err
	}
	if _, err := c.inside("link", "show", "dev", c.ifname); err == nil {
		return nil, fail(codeVariables, "CNI_IFNAME: interface %s exists in the container", c.ifname)
	}
	own := &result{}
	if c.hasIPAM() {
		out, err := c.delegate("ADD")
		if err == nil {
			own, err = c.decode(out)
		}
		if err == nil && len(own.IPs) == 0 {
			err = fail(codeConfig, "the IPAM plugin returned no address")
		}
		if err != nil {
			_, released := c.delegate("DEL")
			return nil, errors.Join(err, released)
		}
	}
	if err := c.connect(own); err != nil {
		err = errors.Join(err, c.disconnect())
		if c.hasIPAM() {
			_, released := c.delegate("DEL")
			err = errors.Join(err, released)
		}
		return nil, err
	}
	hostMAC, containerMAC, err := c.macs()
	if err != nil {
		return nil, err
	}
	r.Interfaces = append(r.Interfaces, iface{Name: c.bridge(), MAC: bridgeMAC(c.bridge())}, iface{Name: c.host(), MAC: hostMAC})
	at := len(r.Interfaces)
	r.Interfaces = append(r.Interfaces, iface{Name: c.ifname, MAC: containerMAC, Sandbox: c.netns})
	for _, i := range own.IPs {
		i.Interface = &at
		r.IPs = append(r.IPs, i)
	}
	r.Routes = append(r.Routes, own.Routes...)
	if own.DNS != nil {
		r.DNS = own.DNS
	}
	return r, nil
}

// connect creates the interfaces and gives them the addresses.
func (c *call) connect(r *result) error {
	bridge, host := c.bridge(), c.host()
	if err := createBridge(bridge); err != nil {
		return err
	}
	steps := [][]string{
		{"ip", "link", "set", bridge, "up"},
		{"ip", "link", "add", host, "type", "veth", "peer", "name", c.ifname, "netns", c.netns},
		{"ip", "link", "set", host, "master", bridge, "up"},
	}
	for _, s := range steps {
		if _, err := command(s...); err != nil {
			return err
		}
	}
	for _, i := range r.IPs {
		if _, err := c.inside("address", "add", i.Address.String(), "dev", c.ifname, "nodad"); err != nil {
			return err
		}
	}
	if _, err := c.inside("link", "set", c.ifname, "up"); err != nil {
		return err
	}
	for n := range r.Routes {
		if err := c.addRoute(r, &r.Routes[n]); err != nil {
			return err
		}
	}
	if err := addGateways(bridge, r); err != nil { // last, because the addresses of the bridge stay
		return err
	}
	_, err := command("nft", "add table inet "+host+"; add chain inet "+host+
		" post { type nat hook postrouting priority srcnat; }; add rule inet "+host+" post iifname "+host+" masquerade")
	return err
}

// createBridge creates a bridge unless it exists, or another process creates it meanwhile.
func createBridge(name string) error {
	exists := func() bool {
		_, err := command("ip", "link", "show", "dev", name)
		return err == nil
	}
	if exists() {
		return nil
	}
	if _, err := command("ip", "link", "add", name, "type", "bridge"); err != nil && !exists() {
		return err
	}
	return nil
}

// addRoute adds a route, by the gateway of an address if it has none of its own.
func (c *call) addRoute(r *result, rt *route) error {
	if rt.GW == nil {
		for _, i := range r.IPs {
			if i.Gateway != nil && i.Address.Addr().Is4() == rt.Dst.Addr().Is4() {
				rt.GW = i.Gateway
			}
		}
	}
	args := []string{"route", "add", rt.Dst.String(), "dev", c.ifname}
	if rt.GW != nil {
		args = append(args, "via", rt.GW.String())
	}
	if _, err := c.inside(args...); err != nil && !strings.Contains(err.Error(), "File exists") {
		return err
	}
	return nil
}

// addGateways gives the bridge the addresses of the gateways.
func addGateways(bridge string, r *result) error {
	for _, i := range r.IPs {
		if i.Gateway == nil {
			continue
		}
		gateway := netip.PrefixFrom(*i.Gateway, i.Address.Bits()).String()
		if _, err := command("ip", "address", "replace", gateway, "dev", bridge, "nodad"); err != nil {
			return err
		}
	}
	return nil
}

// disconnect removes what connect created for the attachment, as far as it exists.
func (c *call) disconnect() error { return disconnect(c.host()) }

func disconnect(host string) error {
	var errs []error
	if _, err := os.Stat("/sys/class/net/" + host); err == nil {
		if _, err := command("ip", "link", "del", host); err != nil && !strings.Contains(err.Error(), "Cannot find device") {
			errs = append(errs, err)
		}
	}
	if _, err := command("nft", "delete", "table", "inet", host); err != nil && !strings.Contains(err.Error(), "No such file") {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// link is what ip(8) prints of a link.
type link struct {
	Name    string   `json:"ifname"`
	Address string   `json:"address"`
	Alias   string   `json:"ifalias"`
	Master  string   `json:"master"`
	Flags   []string `json:"flags"`
}

func decodeLinks(text string, err error) (list []link, _ error) {
	if err != nil {
		return nil, err
	}
	return list, json.Unmarshal([]byte(text), &list)
}

func (c *call) macs() (host, container string, err error) {
	h, err := decodeLinks(command("ip", "-j", "link", "show", "dev", c.host()))
	if err != nil {
		return "", "", err
	}
	i, err := decodeLinks(c.inside("-j", "link", "show", "dev", c.ifname))
	if err != nil {
		return "", "", err
	}
	return h[0].Address, i[0].Address, nil
}

func bridgeMAC(name string) string {
	if l, err := decodeLinks(command("ip", "-j", "link", "show", "dev", name)); err == nil {
		return l[0].Address
	}
	return ""
}

func lanDel(c *call) error {
	err := c.disconnect()
	if c.hasIPAM() {
		_, released := c.delegate("DEL")
		err = errors.Join(err, released)
	}
	return err
}

func lanCheck(c *call) error {
	r, err := c.previous()
	if err != nil {
		return err
	}
	if c.hasIPAM() {
		if _, err := c.delegate("CHECK"); err != nil {
			return err
		}
	}
	host, err := decodeLinks(command("ip", "-j", "link", "show", "dev", c.host()))
	if err != nil || host[0].Master != c.bridge() || !slices.Contains(host[0].Flags, "UP") {
		return fail(codeOther, "interface %s is missing, down or not a port of %s", c.host(), c.bridge())
	}
	if _, err := command("nft", "list", "table", "inet", c.host()); err != nil {
		return fail(codeOther, "the masquerading rule of %s is missing", c.host())
	}
	own, err := decodeLinks(c.inside("-j", "link", "show", "dev", c.ifname))
	if err != nil || !slices.Contains(own[0].Flags, "UP") {
		return fail(codeOther, "interface %s is missing or down", c.ifname)
	}
	at := slices.IndexFunc(r.Interfaces, func(i iface) bool { return i.Name == c.ifname && i.Sandbox == c.netns })
	if at < 0 {
		return fail(codeConfig, "prevResult lacks interface %s", c.ifname)
	}
	if mac := r.Interfaces[at].MAC; mac != "" && mac != own[0].Address {
		return fail(codeOther, "interface %s has the MAC address %s instead of %s", c.ifname, own[0].Address, mac)
	}
	addresses, err := c.inside("-o", "address", "show", "dev", c.ifname)
	if err != nil {
		return err
	}
	for _, i := range r.IPs {
		if i.Interface != nil && *i.Interface == at && !strings.Contains(addresses, " "+i.Address.String()+" ") {
			return fail(codeOther, "address %s is missing on %s", i.Address, c.ifname)
		}
	}
	for _, rt := range r.Routes {
		family := "-4"
		if rt.Dst.Addr().Is6() {
			family = "-6"
		}
		found, err := c.inside(family, "route", "show", "exact", rt.Dst.String())
		if err != nil || strings.TrimSpace(found) == "" {
			return fail(codeOther, "route %s is missing", rt.Dst)
		}
	}
	return nil
}

// optional calls the IPAM plugin with a verb that it does not know if it lacks version 1.1.0.
func (c *call) optional(verb string) error {
	if !c.hasIPAM() {
		return nil
	}
	_, err := c.delegate(verb)
	var f *failure
	if errors.As(err, &f) && f.Code == codeVersion {
		fmt.Fprintf(os.Stderr, "IPAM plugin %s: %s: %s\n", c.conf.IPAM.Type, verb, f.Msg)
		return nil
	}
	return err
}

func lanStatus(c *call) error { return c.optional("STATUS") }

func lanGC(c *call) error {
	valid, err := c.conf.valid()
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, a := range valid {
		keep[c.hostName(a)] = true
	}
	links, err := decodeLinks(command("ip", "-j", "link", "show"))
	errs := []error{err}
	var names []string
	for _, l := range links {
		names = append(names, l.Name)
	}
	tables, err := command("nft", "list", "tables", "inet")
	errs = append(errs, err)
	for _, name := range append(names, strings.Fields(tables)...) {
		if strings.HasPrefix(name, c.prefix()) && !keep[name] {
			errs = append(errs, disconnect(name))
		}
	}
	return errors.Join(append(errs, c.optional("GC"))...)
}
