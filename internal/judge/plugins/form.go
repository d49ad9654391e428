package plugins

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// form checks a result against the form of its version (section "Result types").
type form struct {
	version  cni.Version
	ipam     bool // of an IPAM plugin
	problems []problem
}

// problem is a violation of a row.
type problem struct{ row, title, want, got, hint string }

// object is a JSON object with exact numbers.
type object = map[string]any

// rows returns the rows that the check judges.
func (f *form) rows() []string {
	rows := []string{"VER-02", "RES-01", "RES-09", "RES-12", "DNS-03"}
	if f.version >= cni.V030 && f.ipam {
		rows = append(rows, "IPAM-03")
	} else if f.version >= cni.V030 {
		rows = append(rows, "RES-03")
	}
	if f.version >= cni.V030 && f.version < cni.V100 {
		rows = append(rows, "RES-18")
	}
	return rows
}

func (f *form) add(p problem) { f.problems = append(f.problems, p) }

// shape records a violation of RES-01.
func (f *form) shape(want, format string, args ...any) {
	f.add(problem{"RES-01", "the result does not have the form of its version", want,
		fmt.Sprintf(format, args...), "the tables of the specification differ in 0.2.0, 0.3.x-0.4.0 and 1.x"})
}

// check checks the output of ADD, which must be a JSON object.
func (f *form) check(stdout []byte) {
	var m object
	if err := trial.DecodeExactly(stdout, &m); err != nil {
		f.shape("a JSON object", "%v", err)
		return
	}
	if m["cniVersion"] != f.version.String() {
		f.add(problem{"VER-02", "the result has another version than the request",
			fmt.Sprintf("cniVersion %q", f.version), fmt.Sprintf("cniVersion %v", m["cniVersion"]),
			"print the result in the version of the request, or fail with code 1"})
		return
	}
	foreign := []string{"ip4", "ip6"}
	if f.version < cni.V030 {
		foreign = []string{"interfaces", "ips", "routes"}
	}
	for _, key := range foreign {
		if m[key] != nil {
			f.shape("only keys of version "+f.version.String(), "key %q belongs to other versions", key)
		}
	}
	if f.version < cni.V030 {
		f.side(m, "ip4", "4")
		f.side(m, "ip6", "6")
	} else {
		f.interfaces(m)
		for i, ip := range f.list(m, "ips") {
			f.ip(fmt.Sprintf("ips[%d]", i), ip, len(f.list(m, "interfaces")))
		}
		f.routes("routes", f.list(m, "routes"))
	}
	f.dns(m)
	if len(f.problems) > 0 {
		return
	}
	if _, err := cni.DecodeResultStrict(stdout, f.version); err != nil {
		f.shape("a result that strict readers accept", "%v", err)
	}
}

// list returns the objects of a member that is an array of objects.
func (f *form) list(m object, key string) (list []object) {
	if m[key] == nil {
		return nil
	}
	all, ok := m[key].([]any)
	for _, element := range all {
		o, is := element.(object)
		ok = ok && is
		list = append(list, o)
	}
	if !ok {
		f.shape(key+", an array of objects", "%s is %s", key, trial.Compact(m[key]))
		return nil
	}
	return list
}

func (f *form) interfaces(m object) {
	list := f.list(m, "interfaces")
	if f.ipam && m["interfaces"] != nil {
		f.add(problem{"IPAM-03", "the result of the IPAM plugin lists interfaces", "no key interfaces",
			"interfaces " + trial.Compact(m["interfaces"]), "the main plugin adds the interfaces"})
	}
	for i, o := range list {
		name, _ := o["name"].(string)
		if name == "" {
			f.shape("a name", "interfaces[%d] has the name %s", i, trial.Compact(o["name"]))
		}
		if mac, set := o["mac"].(string); set && mac != "" {
			if _, err := net.ParseMAC(mac); err != nil {
				f.shape("a MAC address", "interfaces[%d]: %v", i, err)
			}
		}
	}
}

func (f *form) ip(path string, o object, interfaces int) {
	address, ok := f.prefix(path+".address", o["address"])
	f.address(path+".gateway", o["gateway"])
	if f.version < cni.V100 && ok {
		switch said := o["version"]; {
		case said == nil:
			f.shape(`version "4" or "6" in each element of ips`, "%s has no version", path)
		case said != ipVersion(address.Addr()):
			f.add(problem{"RES-18", "version and address of an element of ips contradict",
				fmt.Sprintf("version %q for %s", ipVersion(address.Addr()), address), path + ": version " + trial.Compact(said), ""})
		}
	}
	index, set := o["interface"]
	if !set || index == nil {
		return
	}
	if f.ipam {
		f.add(problem{"IPAM-03", "the result of the IPAM plugin has interface indexes", "no key interface in ips",
			path + ".interface is " + trial.Compact(index), "the main plugin adds the indexes"})
		return
	}
	number, _ := index.(json.Number)
	if i, err := number.Int64(); err != nil || i < 0 || i >= int64(interfaces) {
		f.add(problem{"RES-03", "an index of ips points to no interface",
			fmt.Sprintf("an index below %d, the number of interfaces", interfaces),
			path + ".interface is " + trial.Compact(index), "indexes start at 0"})
	}
}

func (f *form) side(m object, key, version string) {
	if m[key] == nil {
		return
	}
	o, ok := m[key].(object)
	if !ok {
		f.shape(key+", an object", "%s is %s", key, trial.Compact(m[key]))
		return
	}
	if p, ok := f.prefix(key+".ip", o["ip"]); ok && ipVersion(p.Addr()) != version {
		f.shape(fmt.Sprintf("an IPv%s address in %s", version, key), "%s.ip is %s", key, p)
	}
	f.address(key+".gateway", o["gateway"])
	f.routes(key+".routes", f.list(o, "routes"))
}

func (f *form) routes(path string, list []object) {
	for i, o := range list {
		f.prefix(fmt.Sprintf("%s[%d].dst", path, i), o["dst"])
		f.address(fmt.Sprintf("%s[%d].gw", path, i), o["gw"])
	}
}

func (f *form) dns(m object) {
	if m["dns"] == nil {
		return
	}
	o, ok := m["dns"].(object)
	if !ok {
		f.shape("dns, an object", "dns is %s", trial.Compact(m["dns"]))
		return
	}
	servers, _ := o["nameservers"].([]any)
	for _, s := range servers {
		text, _ := s.(string)
		if _, err := netip.ParseAddr(text); err != nil {
			f.add(problem{"DNS-03", "a nameserver in the result is not an address", "IP addresses in dns.nameservers",
				trial.Compact(s), "resolvers cannot use names"})
		}
	}
}

// prefix checks an address with a prefix length.
func (f *form) prefix(path string, value any) (netip.Prefix, bool) {
	text, _ := value.(string)
	p, err := netip.ParsePrefix(text)
	if err != nil {
		f.unreadable(path, "an address with a prefix length", value)
		return p, false
	}
	f.canonical(path, text, p.String())
	return p, true
}

// address checks an address. An empty text stands for none.
func (f *form) address(path string, value any) {
	text, is := value.(string)
	if value == nil || is && text == "" {
		return
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		f.unreadable(path, "an address without a prefix length", value)
		return
	}
	f.canonical(path, text, a.String())
}

func (f *form) unreadable(path, want string, value any) {
	f.add(problem{"RES-09", "an address in the result cannot be read", path + ": " + want, path + " is " + trial.Compact(value), ""})
}

func (f *form) canonical(path, text, want string) {
	if text != want {
		f.add(problem{"RES-12", "an address in the result is not in its canonical form",
			fmt.Sprintf("%s %q", path, want), fmt.Sprintf("%q", text), "see RFC 5952"})
	}
}

// ipVersion returns the family of an address as results name it.
func ipVersion(a netip.Addr) string {
	if a.Is4() {
		return "4"
	}
	return "6"
}
