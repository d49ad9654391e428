package plugintest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

// Runtime is a host with one network, on which it calls the plugin as a container runtime does. The
// suite uses it, and so can tests of a plugin's own features. The name of a container is its ID. A
// failure fails the test given to [NewRuntime].
type Runtime struct {
	*Net
	Conf map[string]any // the network configuration; a test may change it between calls
	Dir  string         // the directory for the files of plugins, see [Suite.Rewrite]
	Exec bool           // run plugins as separate processes, which requires [Main]

	// Linked calls plugins as a program does that has linked them in, see [plugin.Linked]. They are
	// not looked up in CNI_PATH.
	Linked bool

	t      testing.TB
	suite  *Suite
	first  bool                       // the network is the first example of the suite
	bin    string                     // CNI_PATH
	before map[string]*cni.Result     // results of the plugins before, by container
	prev   map[string]json.RawMessage // results by container
	watch  func(op string) error      // see [Runtime.Watched]

	server     func() string // the state of the server, see [Suite.Server]; may be nil
	serverKeys []string      // the keys of Conf that [Suite.Server] has set
}

type object = map[string]any

const (
	ifName   = "eth0"
	validKey = "cni.dev/valid-attachments"
)

// NewRuntime creates a host for a plugin. conf is the JSON of its network, with cniVersion and
// name. NewRuntime sets ipam.dataDir of host-local to Dir.
func NewRuntime(t testing.TB, p plugin.Definition, conf string) *Runtime {
	t.Helper()
	return newRuntime(t, &Suite{Plugin: p}, plugin.Example{Config: conf})
}

// newUsed creates a host on which the plugin has been used once, so that the objects that
// attachments share exist.
func newUsed(t testing.TB, s *Suite, example plugin.Example) *Runtime {
	t.Helper()
	r := newRuntime(t, s, example)
	r.Add("first")
	r.Del("first")
	r.Remove("first")
	return r
}

func newRuntime(t testing.TB, s *Suite, example plugin.Example) *Runtime {
	t.Helper()
	dir := t.TempDir()
	r := &Runtime{
		Net: testnet.New(t), Dir: filepath.Join(dir, "state"), bin: filepath.Join(dir, "bin"),
		t: t, suite: s, before: map[string]*cni.Result{}, prev: map[string]json.RawMessage{},
	}
	self, err := os.Executable()
	if err := errors.Join(err, os.Mkdir(r.Dir, 0o755), os.Mkdir(r.bin, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, d := range linked(s) {
		if err := os.Symlink(self, filepath.Join(r.bin, d.Name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	if err := json.Unmarshal([]byte(example.Config), &r.Conf); err != nil {
		t.Fatalf("configuration %q: %v", example.Name, err)
	}
	r.first = s.Examples != nil && example == s.Examples[0]
	s.rewrite(r.Conf, r.Dir)
	if s.Setup != nil {
		s.Setup(t, r.Net)
	}
	if s.Server != nil {
		r.serve()
	}
	return r
}

// serve starts the server of the host.
func (r *Runtime) serve() {
	r.t.Helper()
	before := clone(r.Conf)
	r.server = r.suite.Server(r.t, r.Net, r.Conf)
	for key, value := range r.Conf {
		if !reflect.DeepEqual(value, before[key]) {
			r.serverKeys = append(r.serverKeys, key)
		}
	}
}

// Watched returns a copy of r. Plugins that it runs in this process, including delegates, have
// watch as [plugin.Call.Watch].
func (r *Runtime) Watched(watch func(op string) error) *Runtime {
	c := *r
	c.watch = watch
	return &c
}

// definitions returns the plugins that r can call in this process.
func (r *Runtime) definitions() []plugin.Definition {
	list := linked(r.suite)
	for i, d := range list {
		list[i] = d.Watched(r.watch)
	}
	return list
}

// linked returns the plugins that can run in this process. The last of several with the same name
// is used.
func linked(s *Suite) []plugin.Definition {
	return slices.Concat(linkedIn, s.Delegates, []plugin.Definition{s.Plugin})
}

func (s *Suite) rewrite(conf object, dir string) {
	if ipam, ok := conf["ipam"].(object); ok && ipam["type"] == "host-local" {
		ipam["dataDir"] = dir
	}
	if s.Rewrite != nil {
		s.Rewrite(conf, dir)
	}
}

// Request is one call of the plugin.
type Request struct {
	cni.Env                // the CNI_ variables
	Conf    map[string]any // the configuration, with prevResult if there is one
	Stdin   []byte         // replaces Conf on standard input unless nil
}

// Request returns the request of a runtime for a container, which it creates if necessary.
// prevResult is the result of [Runtime.Add]; for ADD, and for CHECK without an ADD before, it is
// the result of [Suite.Before].
func (r *Runtime) Request(verb cni.Command, container string) Request {
	q := Request{
		Env: cni.Env{
			Command: verb, ContainerID: container, Netns: r.Container(container).Path(),
			IfName: ifName, Path: r.bin,
		},
		Conf: clone(r.Conf),
	}
	prev := r.prev[container]
	if verb == cni.Add || verb == cni.Check && prev == nil {
		prev = r.previous(container)
	}
	if prev != nil {
		q.Conf["prevResult"] = prev
	}
	if n := r.Container(container).Number; n > 0 && r.suite.Distinguish != nil {
		r.suite.Distinguish(&q, n)
	}
	return q
}

// Collect returns the GC request of a runtime with only these containers attached.
func (r *Runtime) Collect(valid ...string) Request {
	list := []cni.ValidAttachment{}
	for _, container := range valid {
		list = append(list, cni.ValidAttachment{ContainerID: container, IfName: ifName})
	}
	q := Request{Env: cni.Env{Command: cni.GC, Path: r.bin}, Conf: clone(r.Conf)}
	q.Conf[validKey] = list
	return q
}

// Do calls the plugin from the host and returns its output, or its error, which is or wraps a
// [*cni.Error] with the code. Do returns an error if a verb other than ADD and VERSION prints
// something (PL-DEL-07, PL-CHK-09, PL-GC-09). The test fails if the verb must not return the code
// of the error (ERR-03, DIS-25). Do may be called concurrently.
func (r *Runtime) Do(ctx context.Context, q Request) (json.RawMessage, error) {
	if q.Stdin == nil {
		b, err := json.Marshal(q.Conf)
		if err != nil {
			return nil, err
		}
		q.Stdin = b
	}
	var out json.RawMessage
	err := r.Host.Run(func() error {
		name := r.suite.Plugin.Name
		caller, path := plugin.Caller(r.definitions(), r.Exec), filepath.Join(r.bin, name)
		if r.Linked {
			caller, path = plugin.Linked{Plugins: r.definitions()}, invoke.LinkedPath(name)
		}
		reply, err := caller.Call(ctx, invoke.Call{Path: path, Env: q.Env, Stdin: q.Stdin})
		out = reply.Stdout
		return err
	})
	if prints := q.Command == cni.Add || q.Command == cni.VersionCommand; err == nil && !prints &&
		len(out) > 0 {
		err = fmt.Errorf("%s succeeds and prints %s, want no output (PL-DEL-07, PL-CHK-09, PL-GC-09)", q.Command, out)
	}
	r.judge(q.Command, err)
	return out, err
}

// marshal returns a configuration as JSON.
func (r *Runtime) marshal(conf object) []byte {
	r.t.Helper()
	b, err := json.Marshal(conf)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// judge fails the test if an error has a code that a plugin must not return (ERR-03, DIS-25).
func (r *Runtime) judge(verb cni.Command, err error) {
	r.t.Helper()
	if err == nil {
		return
	}
	code := cni.CodeOf(err)
	if _, wrong := cni.DecodeErrorStrict(cni.AsError(err).Encode(cni.Newest)); wrong != nil {
		r.t.Errorf("%s returns an invalid error object (ERR-03): %v: %v", verb, wrong, err)
	}
	if verb != cni.Status && (code == cni.CodeNotAvailable || code == cni.CodeLimitedConnectivity) {
		r.t.Errorf("%s: code %d is reserved for STATUS (DIS-25): %v", verb, code, err)
	}
}

// Must is [Runtime.Do] for a call that must succeed. Otherwise the test ends.
func (r *Runtime) Must(q Request) json.RawMessage {
	r.t.Helper()
	out, err := r.Do(r.t.Context(), q)
	if err != nil {
		r.t.Fatalf("%s of %s: %v", q.Command, q.ContainerID, err)
	}
	return out
}

// Says fails the test if err is nil or its message does not contain text.
func Says(t testing.TB, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error does not mention %q: %v", text, err)
	}
}

// Refused is [Runtime.Do] for a call that must fail with one of the codes. Otherwise the test
// fails. It returns the error.
func (r *Runtime) Refused(q Request, codes ...cni.Code) error {
	r.t.Helper()
	_, err := r.Do(r.t.Context(), q)
	if err == nil {
		r.t.Errorf("%s of %s succeeded, want one of the codes %v", q.Command, q.ContainerID, codes)
	} else if code := cni.CodeOf(err); !slices.Contains(codes, code) {
		r.t.Errorf("%s of %s: code %d, want one of %v: %v", q.Command, q.ContainerID, code, codes,
			err)
	}
	return err
}

// Add attaches a container, and ends the test if that fails. Later requests for the container carry
// the result as prevResult.
func (r *Runtime) Add(container string) *cni.Result {
	r.t.Helper()
	r.prev[container] = r.Must(r.Request(cni.Add, container))
	return r.result(container)
}

// Check checks a container that [Runtime.Add] has attached, and ends the test if that fails.
func (r *Runtime) Check(container string) {
	r.t.Helper()
	r.Must(r.Request(cni.Check, container))
}

// Del detaches a container, and ends the test if that fails.
func (r *Runtime) Del(container string) {
	r.t.Helper()
	r.Must(r.Request(cni.Del, container))
	delete(r.prev, container)
}

// result decodes the output of ADD for a container.
func (r *Runtime) result(container string) *cni.Result {
	r.t.Helper()
	result, err := cni.DecodeResultStrict(r.prev[container], 0)
	if err != nil {
		r.t.Fatalf("result of %s: %v\n%s", container, err, r.prev[container])
	}
	return result
}

// makesInterface reports whether the plugin has created the container's interface.
func (r *Runtime) makesInterface(container string) bool {
	return r.hasInterface(container) && r.before[container] == nil
}

// hasInterface reports whether the result contains the container's interface.
func (r *Runtime) hasInterface(container string) bool {
	_, ok := r.result(container).Sandboxed(ifName, r.Container(container).Path())
	return ok
}

// newest sets the version of the network to the newest one that the plugin supports, and reports
// whether that version has the verb.
func (r *Runtime) newest(verb cni.Command) bool {
	v := slices.Max(r.suite.Plugin.Versions)
	r.Conf["cniVersion"] = v.String()
	return v.Has(verb)
}

// State describes the state as text: links, addresses, routes, rules, nftables rulesets, traffic
// control and settings of the host and all containers, the files in Dir, and the server of
// [Suite.Server], one line each. It omits counters, timers and IPv6 link-local addresses. See
// [Runtime.Unchanged].
func (r *Runtime) State() string {
	r.t.Helper()
	return r.withServer(lasting(testnet.Snapshot(r.t, r.Spaces(), r.Dir)))
}

// state is the State that contracts compare: in short mode without the settings below
// /proc/sys/net, because reading them takes most of the time of a suite. The contract faults
// compares them all the same.
func (r *Runtime) state() string { return r.stateOf(r.Spaces()...) }

func (r *Runtime) stateOf(spaces ...*Namespace) string {
	r.t.Helper()
	if testing.Short() {
		return r.objects(spaces...)
	}
	return r.withServer(lasting(testnet.Snapshot(r.t, spaces, r.Dir)))
}

// unchanged fails the test with the difference from an earlier state.
func (r *Runtime) unchanged(before string) {
	r.t.Helper()
	r.same(before, r.state())
}

// objects is stateOf without the settings.
func (r *Runtime) objects(spaces ...*Namespace) string {
	r.t.Helper()
	return r.withServer(lasting(testnet.Objects(r.t, spaces, r.Dir)))
}

// withServer adds the state of the server to the lines of a state.
func (r *Runtime) withServer(state string) string {
	if r.server == nil {
		return state
	}
	lines := strings.Split(state, "\n")
	for line := range strings.Lines(r.server()) {
		lines = append(lines, "server "+strings.TrimSuffix(line, "\n"))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// lasting returns the lines of a state that are not volatile.
func lasting(state string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(state, "\n"), volatile), "\n")
}

// volatile reports whether a line describes a file that host-local keeps in addition to
// reservations (its caches and the last reserved address), or an object that the kernel adds once
// and keeps: the addresses of lo after it first comes up, and the rule for VRFs after the first
// VRF.
func volatile(line string) bool {
	if path, ok := strings.CutPrefix(line, "file "); ok {
		return strings.Contains(path, "/.owners") || strings.Contains(path, "/last_reserved_ip.")
	}
	return strings.Contains(line, " addr dev lo ") ||
		strings.Contains(line, ` route -4 {"dev":"lo","dst":"127.`) ||
		strings.Contains(line, `{"l3mdev":null,"priority":1000,`)
}

// Unchanged fails the test with the difference unless [Runtime.State] returns the same state as
// before.
func (r *Runtime) Unchanged(before string) {
	r.t.Helper()
	r.same(before, r.State())
}

// same fails the test with the difference of two states. It omits settings from a long difference,
// because each interface has hundreds of them.
func (r *Runtime) same(before, after string) {
	r.t.Helper()
	lines := strings.Split(testnet.Diff(before, after), "\n")
	if len(lines) > 30 {
		lines = slices.DeleteFunc(lines,
			func(line string) bool { return strings.Contains(line, " sysctl ") })
	}
	if diff := strings.Join(lines, "\n"); diff != "" {
		r.t.Errorf("state has changed:\n%s", diff)
	}
}

// with returns the runtime for a subtest.
func (r *Runtime) with(t testing.TB) *Runtime {
	c := *r
	c.t = t
	return &c
}

// clone returns a deep copy of an object.
func clone(o object) object { return cloneValue(o).(object) }

func cloneValue(v any) any {
	switch v := v.(type) {
	case object:
		c := maps.Clone(v)
		for key, inner := range v {
			c[key] = cloneValue(inner)
		}
		return c
	case []any:
		c := slices.Clone(v)
		for i, inner := range v {
			c[i] = cloneValue(inner)
		}
		return c
	}
	return v
}
