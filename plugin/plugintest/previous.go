package plugintest

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

// sameResult compares results by value.
var sameResult = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
	cmpopts.EquateEmpty()}

// passedOn fails the test unless the result of ADD contains the previous result: interfaces under
// the same index, and unchanged addresses, routes and DNS. A plugin may change MAC address and MTU
// of the container's interface (PL-ADD-06).
func (r *Runtime) passedOn(container string) {
	r.t.Helper()
	raw := r.previous(container)
	if raw == nil {
		return
	}
	if v, _ := cni.ResultVersion(raw, 0); v < cni.V030 &&
		r.suite.Plugin.Role == plugin.RoleInterface {
		return // a result of 0.1.0 or 0.2.0 describes only the new interface
	}
	before, err := cni.DecodeResultStrict(raw, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	after := r.result(container)
	if r.suite.TakesOver {
		before = takenOver(before, after)
	}
	after.Interfaces = after.Interfaces[:min(len(after.Interfaces), len(before.Interfaces))]
	after.IPs = after.IPs[:min(len(after.IPs), len(before.IPs))]
	after.Routes = after.Routes[:min(len(after.Routes), len(before.Routes))]
	if before.DNS.IsZero() {
		after.DNS = before.DNS
	}
	for _, result := range []*cni.Result{before, after} {
		if i, ok := result.Sandboxed(ifName, r.Container(container).Path()); ok {
			result.Interfaces[i].MAC, result.Interfaces[i].MTU = "", 0
		}
	}
	if diff := cmp.Diff(before, after, sameResult); diff != "" {
		r.t.Errorf("result of ADD is not the previous one with additions (PL-ADD-06): %s", diff)
	}
}

// takenOver returns the previous result with its addresses and routes on the interface that ADD has
// created.
func takenOver(before, after *cni.Result) *cni.Result {
	taken := &cni.Result{Interfaces: after.Interfaces, IPs: before.IPs, Routes: before.Routes,
		DNS: after.DNS}
	if len(after.Interfaces) == 0 { // 0.1.0 and 0.2.0 have no interfaces
		return taken
	}
	for i := range taken.IPs {
		taken.IPs[i].Interface = cni.Some(0)
	}
	return taken
}

// previous calls a chained plugin with three kinds of previous results: none, which it must refuse,
// incomplete ones, which it may refuse, and sloppy ones, which it must repair. Nothing may change.
// PL-ADD-08, PL-CHK-02
func previous(_ *testing.T, r *Runtime) {
	if !r.suite.onlyChained() {
		return
	}
	r.Container("c")
	before := r.state()
	for _, v := range r.suite.Plugin.Versions {
		r.Conf["cniVersion"] = v.String()
		for _, verb := range []cni.Command{cni.Add, cni.Check} {
			q := r.Request(verb, "c")
			delete(q.Conf, "prevResult")
			if v.Has(verb) {
				r.Refused(q, cni.CodeInvalidConfig)
			}
		}
	}
	r.newest(cni.Add)
	for _, wrong := range []any{"x", 5, []any{}, object{"ips": "x"},
		object{"ips": []any{object{"address": "x"}}}, object{"cniVersion": "9.9.9"}} {
		q := r.Request(cni.Add, "c")
		q.Conf["prevResult"] = wrong
		r.Refused(q, cni.CodeDecodingFailure, cni.CodeInvalidConfig, cni.CodeIncompatibleVersion)
	}
	r.poor(func(result *cni.Result) { result.Interfaces, result.IPs = nil, nil })
	r.poor(func(result *cni.Result) { result.IPs, result.Routes = nil, nil })
	r.poor(func(result *cni.Result) {
		for i := range result.IPs {
			result.IPs[i].Interface = cni.Optional[int]{}
		}
	})
	r.sloppy()
	r.unchanged(before)
}

// sloppy calls ADD with previous results that need repair. The result must equal the result for the
// repaired form (RES-10).
func (r *Runtime) sloppy() {
	r.t.Helper()
	for _, v := range r.suite.Plugin.Versions {
		if v < cni.V030 {
			continue
		}
		r.Conf["cniVersion"] = v.String()
		right := r.before["c"].Clone()
		right.Interfaces = nil
		for i := range right.IPs {
			right.IPs[i].Interface = cni.Optional[int]{}
		}
		var wrong object
		if err := json.Unmarshal(r.encode(right), &wrong); err != nil {
			r.t.Fatal(err)
		}
		ips, _ := wrong["ips"].([]any)
		for n, ip := range ips {
			ip.(object)["interface"] = n - 1
			if _, there := ip.(object)["version"]; there {
				ip.(object)["version"] = "5"
			}
		}
		want, wantErr := r.given(r.encode(right))
		got, err := r.given(wrong)
		if diff := cmp.Diff(want, got, sameResult); diff != "" ||
			cni.CodeOf(err) != cni.CodeOf(wantErr) {
			r.t.Errorf("ADD in CNI version %v with prevResult %v: %v; with the repaired prevResult: %v (RES-10)\n%s", v, wrong, err, wantErr, diff)
		}
	}
}

// given calls ADD with a previous result, and then DEL. It returns the result of ADD without MAC
// addresses, which can differ between calls, or nil and the error of ADD.
func (r *Runtime) given(prev any) (*cni.Result, error) {
	r.t.Helper()
	q := r.Request(cni.Add, "c")
	q.Conf["prevResult"] = prev
	out, addErr := r.Do(r.t.Context(), q)
	q.Command = cni.Del
	r.Must(q)
	if addErr != nil {
		return nil, addErr
	}
	result, err := cni.DecodeResultStrict(out, 0)
	if err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	for i := range result.Interfaces {
		result.Interfaces[i].MAC = ""
	}
	return result, nil
}

// poor calls ADD with an incomplete previous result.
func (r *Runtime) poor(lack func(*cni.Result)) {
	r.t.Helper()
	result := r.before["c"].Clone()
	lack(result)
	q := r.Request(cni.Add, "c")
	q.Conf["prevResult"] = r.encode(result)
	if _, err := r.Do(r.t.Context(), q); err != nil {
		if code := cni.CodeOf(err); code != cni.CodeInvalidConfig &&
			code != cni.CodeUnsupportedField {
			r.t.Errorf("ADD with prevResult %s: code %d does not report a wrong configuration, want 2 or 7: %v", q.Conf["prevResult"], code, err)
		}
		return
	}
	q.Command = cni.Del
	r.Must(q)
}
