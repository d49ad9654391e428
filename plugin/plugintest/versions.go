package plugintest

import (
	"slices"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

// versions attaches, checks and detaches in every version of the plugin. Results must be valid and
// in the version of the request. ADD may refuse 0.1.0 and 0.2.0 only if they cannot express the
// result of the example; see [served].
// PL-ADD-04, PL-ADD-12, RES-01
func versions(_ *testing.T, r *Runtime) {
	const container = "c"
	r.Container(container)
	before := r.state()
	r.announced()
	r.newest(cni.Add)
	full := r.Add(container)
	r.Del(container)
	var works []cni.Version
	for _, v := range r.suite.Plugin.Versions {
		r.Conf["cniVersion"] = v.String()
		out, err := r.Do(r.t.Context(), r.Request(cni.Add, container))
		if cni.CodeOf(err) == cni.CodeInvalidConfig && beyondOldest(full, v) {
			continue
		}
		if err != nil {
			r.t.Errorf("ADD in CNI version %v, which VERSION announces, fails (PL-VRS-04): %v", v,
				err)
			continue
		}
		works = append(works, v)
		r.prev[container] = out
		if _, err := cni.DecodeResultStrict(out, 0); err != nil {
			r.t.Errorf("result in CNI version %v is not valid (RES-01): %v\n%s", v, err, out)
		}
		if own, err := cni.ResultVersion(out, 0); err != nil || own != v {
			r.t.Errorf("result of ADD in CNI version %v has cniVersion %v (PL-ADD-04): %v", v, own,
				err)
		}
		for _, i := range r.result(container).Interfaces {
			if sandbox := r.Container(container).Path(); i.Sandbox != "" && i.Sandbox != sandbox {
				r.t.Errorf("result in CNI version %v: interface %s has sandbox %s, want CNI_NETNS (%s) or none (PL-ADD-12)",
					v, i.Name, i.Sandbox, sandbox)
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
	r.suite.served.add(works)
	if works == nil {
		r.t.Error("ADD fails in all CNI versions that VERSION announces (PL-VRS-04)")
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
	r.unchanged(before)
}

// beyondOldest reports whether v is 0.1.0 or 0.2.0, which can express one address of each family,
// and cannot express r.
func beyondOldest(r *cni.Result, v cni.Version) bool {
	if v >= cni.V030 {
		return false
	}
	_, lost, err := r.Relay(v, nil)
	return err != nil || lost != nil
}

// served holds the versions in which ADD has succeeded with an example of a suite.
type served struct {
	mu       sync.Mutex
	examples int // number of examples tried
	versions map[cni.Version]bool
}

// add adds the versions of one example.
func (s *served) add(versions []cni.Version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.examples++
	for _, v := range versions {
		s.versions[v] = true
	}
}

// missing returns the announced versions in which no ADD succeeded. It returns none until all
// examples were tried (PL-VRS-04).
func (s *served) missing(announced []cni.Version, examples int) []cni.Version {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.examples < examples {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(announced),
		func(v cni.Version) bool { return s.versions[v] })
}

// announcesTooMuch fails the test if the plugin announces versions in which ADD fails.
func (s *Suite) announcesTooMuch(t *testing.T) {
	if v := s.served.missing(s.Plugin.Versions, len(s.Examples)); len(v) > 0 && !t.Failed() {
		t.Errorf("plugin %s announces CNI versions in which ADD works with no example: %v (PL-VRS-04); remove them from "+
			"Info.Versions, or add an example for them", s.Plugin.Name, v)
	}
}

// announced compares the answer to VERSION with the versions of the plugin (PL-VRS-01, PL-VRS-04).
func (r *Runtime) announced() {
	reply, err := cni.DecodeVersionReply(r.Must(Request{Env: cni.Env{Command: cni.VersionCommand},
		Conf: object{"cniVersion": "1.0.0"}}))
	if err != nil || reply.CNIVersion != "1.0.0" {
		r.t.Errorf("VERSION answers %+v, want the cniVersion of the request, 1.0.0 (PL-VRS-01): %v",
			reply, err)
	}
	for _, v := range cni.Versions() {
		if got, want := reply.Supports(v),
			slices.Contains(r.suite.Plugin.Versions, v); got != want {
			r.t.Errorf("VERSION announces CNI version %v: %t, Info.Versions contains it: %t (PL-VRS-04)", v, got, want)
		}
	}
}
