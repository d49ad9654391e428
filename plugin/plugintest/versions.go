package plugintest

import (
	"slices"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

// versions attaches, checks and detaches in every version of the plugin. Results have to be valid and in the version that
// was asked for.
// PL-ADD-04, PL-ADD-12, RES-01
func versions(_ *testing.T, r *Runtime) {
	const container = "c"
	r.Container(container)
	before := r.State()
	r.announced()
	served := 0
	for _, v := range r.suite.Plugin.Versions {
		r.Conf["cniVersion"] = v.String()
		out, err := r.Do(r.t.Context(), r.Request(cni.Add, container))
		if v < cni.V030 && cni.CodeOf(err) == cni.CodeInvalidConfig {
			continue // these versions can say one address of each family and nothing else, and know no chains
		}
		if err == nil && v < cni.V030 && r.suite.onlyChained() {
			r.t.Errorf("ADD in %v, which has no prevResult, succeeded", v)
		}
		if err != nil {
			r.t.Errorf("ADD in %v: %v", v, err)
			continue
		}
		served++
		r.prev[container] = out
		if _, err := cni.DecodeResultStrict(out, 0); err != nil {
			r.t.Errorf("result in %v: %v\n%s", v, err, out)
		}
		if own, err := cni.ResultVersion(out, 0); err != nil || own != v {
			r.t.Errorf("result in %v has version %v (%v)", v, own, err)
		}
		for _, i := range r.result(container).Interfaces {
			if sandbox := r.Container(container).Path(); i.Sandbox != "" && i.Sandbox != sandbox {
				r.t.Errorf("result in %v: interface %s has sandbox %s, want %s or none", v, i.Name, i.Sandbox, sandbox)
			}
		}
		r.passedOn(container)
		if v.Has(cni.Check) {
			r.Check(container)
		}
		if !v.PrevResultOnDel() {
			delete(r.prev, container)
		}
		r.Del(container)
	}
	if served == 0 {
		r.t.Error("ADD works in no version")
	}
	for text, code := range map[string]cni.Code{
		"9.9.9": cni.CodeIncompatibleVersion, "0.5.0": cni.CodeIncompatibleVersion,
		"1.0": cni.CodeDecodingFailure, "v1.0.0": cni.CodeDecodingFailure,
	} {
		r.Conf["cniVersion"] = text
		for _, verb := range []cni.Command{cni.Add, cni.Del, cni.Check} {
			r.Refused(r.Request(verb, container), code)
		}
		r.Refused(r.Collect(), code)
	}
	r.Unchanged(before)
}

// announced asks for the versions of the plugin: PL-VRS-01, PL-VRS-04.
func (r *Runtime) announced() {
	reply, err := cni.DecodeVersionReply(r.Must(Request{Env: cni.Env{Command: cni.VersionCommand}, Conf: object{"cniVersion": "1.0.0"}}))
	if err != nil || reply.CNIVersion != "1.0.0" {
		r.t.Errorf("VERSION answers %+v (%v)", reply, err)
	}
	for _, v := range cni.Versions() {
		if got, want := reply.Supports(v), slices.Contains(r.suite.Plugin.Versions, v); got != want {
			r.t.Errorf("VERSION says %t of %v, want %t", got, v, want)
		}
	}
}
