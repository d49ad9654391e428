package cni

import "encoding/json"

// DecodeResult reads a result in whatever version it is; conf, the version of the call, stands in for a cniVersion
// that is absent, empty or not a string. Unknown members are ignored. An object that has code and msg and no member
// of a result is not a result but an error object of a plugin that exited with success.
//
// It is tolerant where it can be without guessing: an interface index of −1 counts as absent, and from 0.3.0 to 0.4.0
// a missing ips[].version is derived from the address.
//
// What is not JSON, has a wrong JSON type or an unreadable address, and a result without any version have
// [CodeDecodingFailure], a version that is not published [CodeIncompatibleVersion], a contradiction
// [CodeInvalidConfig].
func DecodeResult(b []byte, conf Version) (*Result, error) { return decodeResult(b, conf, tolerant) }

// DecodeResultStrict is [DecodeResult] for judging plugins: ips[].version has to be there from 0.3.0 to 0.4.0. An
// interface index of −1 is let through, as runtimes have to cope with it.
func DecodeResultStrict(b []byte, conf Version) (*Result, error) {
	return decodeResult(b, conf, strict)
}

// ResultVersion returns the version that a result claims for itself, or conf where it claims none. Codes are those of
// [DecodeResult].
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

func decodeResult(b []byte, conf Version, mode tolerance) (*Result, error) {
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
	r := &Result{}
	switch v.generation() {
	case genA:
		err = r.decodeA(m)
	case genB:
		err = r.decodeB(m, v, mode)
	case genC:
		err = r.decodeC(m)
	}
	if err == nil {
		err = decodeMember(m, "dns", &r.DNS)
	}
	if err == nil {
		err = r.Validate()
	}
	if err == nil && v.generation() != genC {
		err = r.refuseMixedFamilies()
	}
	if err != nil {
		return nil, DecodeFailure("result", err)
	}
	return r, nil
}

// refuseErrorObject finds a plugin that reports an error and exits with success.
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

func (r *Result) decodeA(m map[string]json.RawMessage) error {
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
			return Errorf(CodeInvalidConfig, "%s holds %s", side.key, w.IP)
		}
		r.IPs = append(r.IPs, IP{Address: w.IP, Gateway: w.Gateway.Addr})
		for n, rt := range w.Routes {
			if rt == nil {
				return Errorf(CodeInvalidConfig, "%s: routes[%d] is null", side.key, n)
			}
			if rt.Dst.IsValid() && rt.Dst.Addr().Is4() != side.is4 {
				return Errorf(CodeInvalidConfig, "%s holds route %s", side.key, rt.Dst)
			}
			r.Routes = append(r.Routes, Route{Dst: rt.Dst, GW: rt.GW.Addr})
		}
	}
	return nil
}

func (r *Result) decodeB(m map[string]json.RawMessage, v Version, mode tolerance) error {
	interfaces, err := elements[wireInterfaceB](m, "interfaces")
	if err != nil {
		return err
	}
	for _, w := range interfaces {
		r.Interfaces = append(r.Interfaces, Interface{Name: w.Name, MAC: w.MAC, Sandbox: w.Sandbox})
	}
	key := "ips"
	if v == V030 && lookup(m, key) == nil {
		key = "ip" // the result section of 0.3.0 says so; everybody writes ips
	}
	ips, err := elements[wireIPB](m, key)
	if err != nil {
		return err
	}
	for n, w := range ips {
		derive := w.Version == "" && mode == tolerant
		if w.Address.IsValid() && w.Version != family(w.Address) && !derive {
			return Errorf(CodeInvalidConfig, "ips[%d] has version %q and address %s", n, w.Version, w.Address)
		}
		r.IPs = append(r.IPs, w.ip())
	}
	return r.decodeRoutes(m)
}

func (r *Result) decodeC(m map[string]json.RawMessage) error {
	interfaces, err := elements[wireInterface](m, "interfaces")
	if err != nil {
		return err
	}
	for _, w := range interfaces {
		r.Interfaces = append(r.Interfaces, Interface{
			Name: w.Name, MAC: w.MAC, MTU: w.MTU, Sandbox: w.Sandbox, SocketPath: w.SocketPath, PciID: w.PciID,
		})
	}
	ips, err := elements[wireIP](m, "ips")
	if err != nil {
		return err
	}
	for _, w := range ips {
		r.IPs = append(r.IPs, w.ip())
	}
	return r.decodeRoutes(m)
}

func (r *Result) decodeRoutes(m map[string]json.RawMessage) error {
	routes, err := elements[wireRoute](m, "routes")
	if err != nil {
		return err
	}
	for _, w := range routes {
		r.Routes = append(r.Routes, w.route())
	}
	return nil
}

func (w wireIP) ip() IP {
	ip := IP{Address: w.Address, Gateway: w.Gateway.Addr, Interface: optional(w.Interface)}
	if ip.Interface.Value == -1 {
		ip.Interface = Optional[int]{}
	}
	return ip
}

// refuseMixedFamilies checks what held until 0.4.0: a gateway is of the family of what it leads to.
func (r *Result) refuseMixedFamilies() error {
	for n, ip := range r.IPs {
		if mixed(ip.Address, ip.Gateway) {
			return Errorf(CodeInvalidConfig, "ips[%d] has address %s and gateway %s", n, ip.Address, ip.Gateway)
		}
	}
	for n, rt := range r.Routes {
		if mixed(rt.Dst, rt.GW) {
			return Errorf(CodeInvalidConfig, "routes[%d] has dst %s and gw %s", n, rt.Dst, rt.GW)
		}
	}
	return nil
}

// decodeMember decodes a member if it is there.
func decodeMember(m map[string]json.RawMessage, key string, into any) error {
	raw := lookup(m, key)
	if raw == nil {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
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
