package plugintest

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
)

// Fuzz feeds a plugin requests made from its examples: verb, CNI_ARGS and standard input. Whatever they are, it must
// not panic and has to print at most one JSON document, and exactly one where it fails. No container exists. Call it
// from a fuzz target.
func Fuzz(f *testing.F, s Suite) {
	verbs := []cni.Command{cni.Add, cni.Del, cni.Check, cni.Status, cni.VersionCommand}
	if s.Examples == nil {
		s.Examples = s.Plugin.Examples()
	}
	for _, e := range s.Examples {
		for i := range verbs {
			f.Add(uint8(i), "MAC=02:00:00:00:00:01;IP=10.0.0.2", []byte(e.Config))
		}
	}
	host := testnet.New(f).Host
	dir := f.TempDir()
	handler := s.Plugin.Handler(plugin.Caller(linked(&s), false))
	f.Fuzz(func(t *testing.T, verb uint8, args string, stdin []byte) {
		env := cni.Env{
			Command: verbs[int(verb)%len(verbs)], ContainerID: "fuzz", IfName: ifName, Netns: "/absent/namespace", Args: args,
		}
		if err := os.RemoveAll(dir); err != nil { // what a call does must depend on nothing else
			t.Fatal(err)
		}
		var out []byte
		var ok bool
		err := host.Run(func() error {
			out, ok = handler(t.Context(), env, s.contain(stdin, dir))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			if prints := env.Command == cni.Add || env.Command == cni.VersionCommand; prints != json.Valid(out) || !prints && len(out) > 0 {
				t.Errorf("%s printed %q", env.Command, out)
			}
			return
		}
		e, err := cni.DecodeErrorStrict(out)
		if err != nil {
			t.Fatalf("%s printed %q: %v", env.Command, out, err)
		}
		if strings.Contains(e.Msg, "panic:") {
			t.Errorf("%s: %v", env.Command, e)
		}
	})
}

// contain keeps a request from leading to a folder other than dir.
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
