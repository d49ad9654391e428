package cni

import (
	"encoding/json"
	"fmt"
)

// DecodeResult decodes a result of any version. If cniVersion is absent, empty or not a string, it
// uses conf, the version of the call. It ignores unknown members. It treats an object with code and
// msg, and without any member of a result, as the error object of a plugin that exited with
// success, and returns an error.
//
// DecodeResult repairs results that libcni accepts but [Result.Validate] refuses; see
// [RepairResult].
//
// The code is [CodeDecodingFailure] for invalid JSON, a wrong JSON type, an address that cannot be
// parsed and a result without any version, [CodeIncompatibleVersion] for a version that is not
// published, and [CodeInvalidConfig] for a null element, a missing address or destination and an
// interface without a name.
func DecodeResult(b []byte, conf Version) (*Result, error) {
	r, _, err := RepairResult(b, conf)
	return r, err
}

// RepairResult decodes a result like [DecodeResult] and also returns its repairs, one sentence
// each, for the log:
//
//   - An index outside of interfaces is treated as absent, and so is a number outside the unsigned
//     32-bit range.
//   - The family of an address follows from the address, regardless of version (0.3.0 to 0.4.0)
//     and of ip4 or ip6 (0.1.0 and 0.2.0).
//   - A gateway of the other family is kept, although only 1.0.0 and later allow it.
func RepairResult(b []byte, conf Version) (r *Result, repairs []string, err error) {
	d := resultDecoder{mode: tolerant}
	r, err = d.decode(b, conf)
	return r, d.repairs, err
}

// DecodeResultStrict is [DecodeResult] for tests of plugins: it repairs nothing, and returns an
// error with [CodeInvalidConfig] for a contradiction. It accepts an interface index of −1, because
// runtimes must cope with it.
func DecodeResultStrict(b []byte, conf Version) (*Result, error) {
	d := resultDecoder{mode: strict}
	return d.decode(b, conf)
}

// ResultVersion returns the version that a result states, or conf if it states none. It returns the
// same codes as [DecodeResult].
func ResultVersion(b []byte, conf Version) (Version, error) {
	m, err := parseObject(b)
	if err != nil {
		return 0, DecodeFailure("result", err)
	}
	return resultVersion(m, conf)
}

func resultVersion(m map[string]json.RawMessage, conf Version) (Version, error) {
	var s string
	if json.Unmarshal(lookup(m, "cniVersion"), &s) != nil || s == "" {
		return conf, nil
	}
	v, err := ParseVersion(s)
	if err != nil {
		return 0, DecodeFailure("result", err)
	}
	return v, nil
}

type tolerance bool

const (
	tolerant tolerance = false
	strict   tolerance = true
)

// resultDecoder decodes one result.
type resultDecoder struct {
	mode    tolerance
	result  Result
	repairs []string
}

func (d *resultDecoder) decode(b []byte, conf Version) (*Result, error) {
	m, err := parseObject(b)
	if err != nil {
		return nil, DecodeFailure("result", err)
	}
	if err := refuseErrorObject(m); err != nil {
		return nil, err
	}
	v, err := resultVersion(m, conf)
	if err != nil {
		return nil, err
	}
	if v == 0 {
		return nil, Errorf(CodeDecodingFailure, "result has no cniVersion")
	}
	switch v.generation() {
	case genA:
		err = d.decodeA(m)
	case genB:
		err = d.decodeB(m, v)
	case genC:
		err = d.decodeC(m)
	}
	if err == nil {
		err = decodeMember(m, "dns", &d.result.DNS)
	}
	if err == nil {
		d.repairNumbers()
		err = d.result.Validate()
	}
	if err == nil && v.generation() != genC {
		err = d.mixedFamilies()
	}
	if err != nil {
		return nil, DecodeFailure("result", err)
	}
	return &d.result, nil
}

// wrong returns an error for a contradiction if the decoder is strict. Otherwise it records the
// repair.
func (d *resultDecoder) wrong(repair, format string, args ...any) error {
	if d.mode == strict {
		return Errorf(CodeInvalidConfig, format, args...)
	}
	d.note(repair, format, args...)
	return nil
}

func (d *resultDecoder) note(repair, format string, args ...any) {
	d.repairs = append(d.repairs, fmt.Sprintf(format, args...)+": "+repair)
}

// refuseErrorObject returns an error if a plugin printed an error object but exited with success.
func refuseErrorObject(m map[string]json.RawMessage) error {
	if m["code"] == nil || m["msg"] == nil {
		return nil
	}
	for _, key := range []string{"ip4", "ip6", "interfaces", "ips", "routes", "dns"} {
		if m[key] != nil {
			return nil
		}
	}
	return Errorf(CodeDecodingFailure, "result is an error object: %s", m["msg"])
}

func (d *resultDecoder) decodeA(m map[string]json.RawMessage) error {
	for _, side := range []struct {
		key string
		is4 bool
	}{{"ip4", true}, {"ip6", false}} {
		var w *wireIPA
		if err := decodeMember(m, side.key, &w); err != nil {
			return err
		}
		if w == nil {
			continue
		}
		if !w.IP.IsValid() {
			return Errorf(CodeInvalidConfig, "%s has no ip", side.key)
		}
		if w.IP.Addr().Is4() != side.is4 {
			if err := d.wrong("its family counts", "%s holds %s", side.key, w.IP); err != nil {
				return err
			}
		}
		d.result.IPs = append(d.result.IPs, IP{Address: w.IP, Gateway: w.Gateway.Addr})
		if err := d.decodeRoutesA(side.key, side.is4, w.Routes); err != nil {
			return err
		}
	}
	return nil
}

func (d *resultDecoder) decodeRoutesA(key string, is4 bool, routes []*wireRouteA) error {
	for n, rt := range routes {
		if rt == nil {
			return Errorf(CodeInvalidConfig, "%s: routes[%d] is null", key, n)
		}
		if rt.Dst.IsValid() && rt.Dst.Addr().Is4() != is4 {
			if err := d.wrong("its family counts", "%s holds route %s", key, rt.Dst); err != nil {
				return err
			}
		}
		d.result.Routes = append(d.result.Routes, Route{Dst: rt.Dst, GW: rt.GW.Addr})
	}
	return nil
}

func (d *resultDecoder) decodeB(m map[string]json.RawMessage, v Version) error {
	interfaces, err := elements[wireInterfaceB](m, "interfaces")
	if err != nil {
		return err
	}
	for _, w := range interfaces {
		d.result.Interfaces = append(d.result.Interfaces,
			Interface{Name: w.Name, MAC: w.MAC, Sandbox: w.Sandbox})
	}
	key := "ips"
	if v == V030 && lookup(m, key) == nil {
		key = "ip" // only the result section of 0.3.0 names it ip; all implementations write ips
	}
	ips, err := elements[wireIPB](m, key)
	if err != nil {
		return err
	}
	for n, w := range ips {
		if want := family(w.Address); w.Address.IsValid() && w.Version != want {
			err := d.wrong("it counts as "+want, "ips[%d] has version %q and address %s", n,
				w.Version, w.Address)
			if err != nil {
				return err
			}
		}
		d.addIP(n, w.wireIP, len(interfaces))
	}
	return d.decodeRoutes(m)
}

func (d *resultDecoder) decodeC(m map[string]json.RawMessage) error {
	interfaces, err := elements[wireInterface](m, "interfaces")
	if err != nil {
		return err
	}
	for _, w := range interfaces {
		d.result.Interfaces = append(d.result.Interfaces, Interface{
			Name: w.Name, MAC: w.MAC, MTU: w.MTU, Sandbox: w.Sandbox, SocketPath: w.SocketPath,
			PciID: w.PciID,
		})
	}
	ips, err := elements[wireIP](m, "ips")
	if err != nil {
		return err
	}
	for n, w := range ips {
		d.addIP(n, *w, len(interfaces))
	}
	return d.decodeRoutes(m)
}

func (d *resultDecoder) decodeRoutes(m map[string]json.RawMessage) error {
	routes, err := elements[wireRoute](m, "routes")
	if err != nil {
		return err
	}
	for _, w := range routes {
		d.result.Routes = append(d.result.Routes, w.route())
	}
	return nil
}

// addIP adds ips[n]. An index out of range is left to [Result.Validate] if it is not repaired.
func (d *resultDecoder) addIP(n int, w wireIP, interfaces int) {
	ip := IP{Address: w.Address, Gateway: w.Gateway.Addr, Interface: optional(w.Interface)}
	i, ok := ip.Interface.Get()
	switch {
	case !ok || i >= 0 && i < interfaces:
	case d.mode == tolerant:
		d.note("it counts as absent", "ips[%d]: interface %d is not one of %d", n, i, interfaces)
		ip.Interface = Optional[int]{}
	case i == -1:
		ip.Interface = Optional[int]{}
	}
	d.result.IPs = append(d.result.IPs, ip)
}

// repairNumbers removes the numbers that [Result.Validate] refuses, unless the decoder is strict.
func (d *resultDecoder) repairNumbers() {
	if d.mode == strict {
		return
	}
	const repair, format = "it counts as absent", "%s[%d]: %s %d is not an unsigned 32-bit number"
	for n := range d.result.Interfaces {
		if mtu := &d.result.Interfaces[n].MTU; !unsigned32(*mtu) {
			d.note(repair, format, "interfaces", n, "mtu", *mtu)
			*mtu = 0
		}
	}
	for n := range d.result.Routes {
		rt := &d.result.Routes[n]
		for _, number := range rt.numbers() {
			if !unsigned32(number.value) {
				d.note(repair, format, "routes", n, number.key, number.value)
				rt.clear(number.key)
			}
		}
	}
}

// mixedFamilies checks a rule that held until 0.4.0: a gateway has the family of its destination.
func (d *resultDecoder) mixedFamilies() error {
	const repair = "it is kept"
	for n, ip := range d.result.IPs {
		if mixed(ip.Address, ip.Gateway) {
			err := d.wrong(repair,
				"ips[%d] has address %s and gateway %s", n, ip.Address, ip.Gateway)
			if err != nil {
				return err
			}
		}
	}
	for n, rt := range d.result.Routes {
		if mixed(rt.Dst, rt.GW) {
			err := d.wrong(repair, "routes[%d] has dst %s and gw %s", n, rt.Dst, rt.GW)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// decodeMember decodes a member if it is present.
func decodeMember(m map[string]json.RawMessage, key string, into any) error {
	raw := lookup(m, key)
	if raw == nil {
		return nil
	}
	if err := json.Unmarshal(preferExact(raw), into); err != nil {
		return DecodeFailure(key, err)
	}
	return nil
}

// elements decodes a member that is an array of objects.
func elements[T any](m map[string]json.RawMessage, key string) ([]*T, error) {
	var all []*T
	if err := decodeMember(m, key, &all); err != nil {
		return nil, err
	}
	for n, element := range all {
		if element == nil {
			return nil, Errorf(CodeInvalidConfig, "%s[%d] is null", key, n)
		}
	}
	return all, nil
}
