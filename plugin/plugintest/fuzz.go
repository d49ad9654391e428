package plugintest

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

// absent replaces the path of the container's namespace in the fuzzer's input, which must be the
// same in every process. The path does not exist.
const absent = "/absent/namespace"

// Fuzz feeds a plugin with requests derived from its examples: verb, CNI_ARGS and standard input.
// The plugin must not panic. It must print one JSON document if it fails or if the verb is ADD or
// VERSION, and otherwise nothing. DEL must succeed after each successful ADD (SEC-05, ERR-01). Only
// chained plugins have a container. Fuzz is called by a fuzz target.
func Fuzz(f *testing.F, s Suite) {
	verbs := []cni.Command{cni.Add, cni.Del, cni.Check, cni.Status, cni.VersionCommand}
	if s.Examples == nil {
		s.Examples = s.Plugin.Examples()
	}
	r := newRuntime(f, &s, s.Examples[0])
	env := cni.Env{ContainerID: "fuzz", IfName: ifName, Netns: absent}
	if s.before() != nil {
		env.Netns = r.Container(env.ContainerID).Path()
	}
	for _, e := range s.Examples {
		for i := range verbs {
			f.Add(uint8(i), "MAC=02:00:00:00:00:01;IP=10.0.0.2", r.seed(e, env))
		}
	}
	handler := s.Plugin.Handler(plugin.Caller(linked(&s), false))
	f.Fuzz(func(t *testing.T, verb uint8, args string, stdin []byte) {
		env := env
		env.Command, env.Args = verbs[int(verb)%len(verbs)], args
		if err := os.RemoveAll(r.Dir); err != nil { // a call must not depend on the calls before
			t.Fatal(err)
		}
		stdin = s.contain(bytes.ReplaceAll(stdin, []byte(absent), []byte(env.Netns)), r.Dir)
		err := r.Host.Run(func() error {
			out, ok := handler(t.Context(), invoke.Call{Env: env, Stdin: stdin})
			judgeOutput(t, env.Command, out, ok)
			if ok && env.Command == cni.Add {
				env.Command = cni.Del
				if out, ok = handler(t.Context(), invoke.Call{Env: env, Stdin: stdin}); !ok {
					t.Errorf("DEL after ADD: %s", out)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// seed returns a configuration, with the result of the plugins before if there is one.
func (r *Runtime) seed(e plugin.Example, env cni.Env) []byte {
	if r.suite.before() == nil {
		return []byte(e.Config)
	}
	r.Conf = nil
	if err := json.Unmarshal([]byte(e.Config), &r.Conf); err != nil {
		r.t.Fatalf("configuration %q: %v", e.Name, err)
	}
	seed := r.marshal(r.Request(cni.Add, env.ContainerID).Conf)
	return bytes.ReplaceAll(seed, []byte(env.Netns), []byte(absent))
}

// judgeOutput fails the test if the output of a call has the wrong form.
func judgeOutput(t *testing.T, verb cni.Command, out []byte, ok bool) {
	t.Helper()
	if ok {
		if prints := verb == cni.Add || verb == cni.VersionCommand; prints != json.Valid(out) ||
			!prints && len(out) > 0 {
			t.Errorf("%s printed %q", verb, out)
		}
		return
	}
	e, err := cni.DecodeErrorStrict(out)
	switch {
	case err != nil:
		t.Errorf("%s printed %q: %v", verb, out, err)
	case strings.Contains(e.Msg, "panic:"):
		t.Errorf("%s: %v", verb, e)
	}
}

// contain rewrites the directories in a request to dir.
func (s *Suite) contain(stdin []byte, dir string) []byte {
	var conf object
	if json.Unmarshal(stdin, &conf) != nil || conf == nil {
		return stdin
	}
	for key, value := range conf {
		if ipam, ok := value.(object); ok && strings.EqualFold(key, "ipam") {
			for inner := range ipam {
				if strings.EqualFold(inner, "dataDir") {
					delete(ipam, inner)
				}
			}
			ipam["dataDir"] = dir
		}
	}
	s.rewrite(conf, dir)
	out, err := json.Marshal(conf)
	if err != nil {
		return stdin
	}
	return out
}
