package chained_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	sessions "github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

func TestMain(m *testing.M) { testnet.Main(m) }

type (
	config  struct{ plugin.Common }
	session = chained.Session
)

// fake is a Decorator that calls functions; nil functions do nothing.
type fake struct {
	config
	apply  func(*session, *cni.Result) error
	verify func(*session) error
	remove func(*session, chained.Gone) error
}

func (f *fake) Apply(_ context.Context, s *session, r *cni.Result) error {
	if f.apply == nil {
		return nil
	}
	return f.apply(s, r)
}

func (f *fake) Verify(_ context.Context, s *session) error {
	if f.verify == nil {
		return nil
	}
	return f.verify(s)
}

func (f *fake) Remove(_ context.Context, s *session, gone chained.Gone) error {
	if f.remove == nil {
		return nil
	}
	return f.remove(s, gone)
}

// demanding is a Decorator that is never satisfied.
type demanding struct {
	fake
	needs kernel.Feature
}

func (*demanding) Validate(c *plugin.Call) error {
	if c.Command == cni.Status {
		return nil
	}
	return cni.Errorf(cni.CodeInvalidConfig, "not valid")
}

func (d *demanding) Status(context.Context, *plugin.Call) error {
	if err := sessions.Lacking(d.needs); err != nil {
		return err
	}
	return cni.Errorf(cni.CodeNotAvailable, "the decorator is not ready")
}

func runtime(t *testing.T, d chained.Decorator, traits chained.Traits) *plugintest.Runtime {
	t.Helper()
	def := chained.Define(plugin.Info{Name: "fake", Role: plugin.RoleChained}, traits, func() chained.Decorator { return d })
	return plugintest.NewRuntime(t, def, `{"cniVersion":"1.1.0","name":"net","type":"fake"}`)
}

func wantError(t *testing.T, err error, says ...string) {
	t.Helper()
	for _, text := range says {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v does not contain %q", err, text)
		}
	}
}

// change marks the interfaces in both namespaces.
func change(s *session) error {
	host, err := s.Host.Links.ByName(s.Prev.Interfaces[0].Name)
	if err != nil {
		return err
	}
	inside, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return err
	}
	return errors.Join(s.Host.Links.SetAlias(host, s.Tag), s.Sandbox.Links.SetAlias(inside, s.Tag))
}

// TestRollback: if Apply fails or panics, its changes in both namespaces are rolled back
// (PL-ADD-10).
func TestRollback(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func() error{
		"error": func() error { return cni.Errorf(cni.CodeIOFailure, "end of Apply") },
		"panic": func() error { panic("end of Apply") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := false
			r := runtime(t, &fake{apply: func(s *session, _ *cni.Result) error {
				if err := change(s); err != nil {
					return err
				}
				changed = true
				return end()
			}}, chained.Traits{Inside: true})
			r.Container("c")
			before := r.State()
			wantError(t, r.Refused(r.Request(cni.Add, "c"), cni.CodeIOFailure, cni.CodeInternal), "end of Apply")
			if !changed {
				t.Error("nothing was changed")
			}
			r.Unchanged(before)
		})
	}
}

// TestKept: the changes of a successful Apply stay.
func TestKept(t *testing.T) {
	t.Parallel()
	r := runtime(t, &fake{apply: func(s *session, _ *cni.Result) error { return change(s) }}, chained.Traits{Inside: true})
	r.Add("c")
	tag := cni.Attachment{Network: "net", Container: "c", IfName: "eth0"}.Tag()
	for _, space := range r.Spaces() {
		if links := space.Command("ip", "link"); !strings.Contains(links, tag) {
			t.Errorf("%s has nothing with %q:\n%s", space.Name, tag, links)
		}
	}
}

// TestRollbackReportsErrors: if the rollback fails too, the error contains both causes.
func TestRollbackReportsErrors(t *testing.T) {
	t.Parallel()
	r := runtime(t, &fake{apply: func(s *session, _ *cni.Result) error {
		nothing := func() error { return nil }
		if err := s.Tx.Do("a change", nothing, func() error { return errors.New("stuck") }); err != nil {
			return err
		}
		return cni.Errorf(cni.CodeIOFailure, "end of Apply")
	}}, chained.Traits{})
	wantError(t, r.Refused(r.Request(cni.Add, "c"), cni.CodeIOFailure), "end of Apply", "undo a change: stuck")
}

// TestPrevResult: without a previous result ADD and CHECK fail, and DEL and GC succeed (PL-ADD-08,
// PL-CHK-02, PL-DEL-04).
func TestPrevResult(t *testing.T) {
	t.Parallel()
	never := func(*session) error {
		t.Error("the decorator was called")
		return nil
	}
	removals := 0
	r := runtime(t, &fake{
		apply:  func(s *session, _ *cni.Result) error { return never(s) },
		verify: never,
		remove: func(s *session, _ chained.Gone) error {
			removals++
			return nil
		},
	}, chained.Traits{})
	for _, verb := range []cni.Command{cni.Add, cni.Check, cni.Del} {
		q := r.Request(verb, "c")
		delete(q.Conf, "prevResult")
		if verb == cni.Del {
			r.Must(q)
			continue
		}
		wantError(t, r.Refused(q, cni.CodeInvalidConfig), "must be called as chained plugin: no prevResult: fake")
	}
	r.Must(r.Collect())
	if removals != 2 {
		t.Errorf("DEL and GC called Remove %d times", removals)
	}
}

// TestResult: the result of ADD is the previous result as amended by Apply, and Prev stays
// unchanged (PL-ADD-06).
func TestResult(t *testing.T) {
	t.Parallel()
	var prev *cni.Result
	r := runtime(t, &fake{apply: func(s *session, r *cni.Result) error {
		r.Interfaces[1].MTU = 1400
		r.Interfaces = append(r.Interfaces, cni.Interface{Name: "mine"})
		r.DNS.Nameservers[0] = "10.0.0.53"
		prev = s.Prev
		return nil
	}}, chained.Traits{})
	got := r.Add("c")
	if prev.Interfaces[1].MTU != 1500 || len(prev.Interfaces) != 2 || prev.DNS.Nameservers[0] != "10.88.0.1" {
		t.Errorf("Prev has changed: %+v", prev)
	}
	if got.Interfaces[1].MTU != 1400 || len(got.Interfaces) != 3 || got.Interfaces[2].Name != "mine" || got.DNS.Nameservers[0] != "10.0.0.53" {
		t.Errorf("result %+v", got)
	}
}

// TestInside: a plugin with Inside gets the container's namespace, which must exist except for DEL.
func TestInside(t *testing.T) {
	t.Parallel()
	for _, inside := range []bool{true, false} {
		seen := func(s *session) error {
			if (s.Sandbox != nil) != inside {
				t.Errorf("%s: Inside %t: sandbox %v", s.Command, inside, s.Sandbox)
			}
			return nil
		}
		r := runtime(t, &fake{
			apply:  func(s *session, _ *cni.Result) error { return seen(s) },
			verify: seen,
			remove: func(s *session, gone chained.Gone) error {
				if gone.All() {
					return nil
				}
				return seen(s)
			},
		}, chained.Traits{Inside: inside})
		r.Add("c")
		r.Check("c")
		r.Del("c")
		for _, verb := range []cni.Command{cni.Add, cni.Check} {
			q := r.Request(verb, "c")
			q.Netns = "/absent"
			if inside {
				r.Refused(q, cni.CodeUnknownContainer)
			} else {
				r.Must(q)
			}
		}
	}
}

// TestDelWithoutNamespace: DEL calls Remove, without a sandbox, for a missing and for an unreadable
// namespace, and reports only errors of Remove (PL-DEL-03, PL-DEL-04).
func TestDelWithoutNamespace(t *testing.T) {
	t.Parallel()
	loop := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	var removed []cni.Attachment
	var stuck error
	r := runtime(t, &fake{remove: func(s *session, gone chained.Gone) error {
		if s.Sandbox != nil || gone.All() {
			t.Errorf("DEL with CNI_NETNS %q: sandbox %v, gone %+v", s.Netns, s.Sandbox, gone)
		}
		removed = append(removed, gone.One)
		return stuck
	}}, chained.Traits{Inside: true})
	q := r.Request(cni.Del, "c")
	for _, path := range []string{"", "/absent", t.TempDir()} {
		q.Netns = path
		r.Must(q)
	}
	q.Netns = loop // cannot be opened
	r.Must(q)
	stuck = errors.New("stuck")
	wantError(t, r.Refused(q, cni.CodeInternal), "stuck")
	one := cni.Attachment{Network: "net", Container: "c", IfName: "eth0"}
	if diff := cmp.Diff([]cni.Attachment{one, one, one, one, one}, removed); diff != "" {
		t.Error(diff)
	}
}

// TestGC: Remove gets all attachments of the network except the valid ones.
func TestGC(t *testing.T) {
	t.Parallel()
	calls := 0
	r := runtime(t, &fake{remove: func(s *session, gone chained.Gone) error {
		calls++
		if s.Sandbox != nil || s.Prev != nil || !gone.All() {
			t.Errorf("sandbox %v, prev %v, gone %+v", s.Sandbox, s.Prev, gone)
		}
		for _, row := range []struct {
			network, container string
			gone               bool
		}{{"net", "valid", false}, {"net", "stale", true}, {"other", "stale", false}} {
			a := cni.Attachment{Network: row.network, Container: row.container, IfName: "eth0"}
			if gone.Tag(a.Tag()) != row.gone {
				t.Errorf("%s of %s: gone is %t", row.container, row.network, !row.gone)
			}
		}
		return cni.Errorf(cni.CodeIOFailure, "stuck")
	}}, chained.Traits{Inside: true})
	wantError(t, r.Refused(r.Collect("valid"), cni.CodeIOFailure), "stuck")
	if calls != 1 {
		t.Errorf("Remove was called %d times", calls)
	}
}

// TestStatus: STATUS reports missing kernel features before it asks the decorator.
func TestStatus(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		decorator chained.Decorator
		says      string // "": STATUS succeeds
	}{
		{"nothing needed, nothing known", &fake{}, ""},
		{"kernel has it, decorator is not ready", &demanding{needs: kernel.FeatureVeth}, "decorator"},
		{"kernel lacks it, decorator is not ready", &demanding{needs: "nosuchkind"}, "nosuchkind"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, row.decorator, chained.Traits{})
			q := plugintest.Request{Env: cni.Env{Command: cni.Status}, Conf: r.Conf}
			if row.says == "" {
				r.Must(q)
				return
			}
			wantError(t, r.Refused(q, cni.CodeNotAvailable), row.says)
		})
	}
}

// TestValidate: the decorator validates the configuration for ADD and CHECK, but not for DEL and
// GC.
func TestValidate(t *testing.T) {
	t.Parallel()
	r := runtime(t, &demanding{}, chained.Traits{})
	for _, verb := range []cni.Command{cni.Add, cni.Check} {
		wantError(t, r.Refused(r.Request(verb, "c"), cni.CodeInvalidConfig), "not valid")
	}
	r.Must(r.Request(cni.Del, "c"))
	r.Must(r.Collect())
}
