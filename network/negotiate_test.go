package network_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet/exefile"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// answers returns the script of a plugin that supports some versions.
func answers(versions ...string) script {
	return script{cni.VersionCommand: {Stdout: string(cni.VersionReply{CNIVersion: "1.1.0",
		Supported: versions}.Encode())}}
}

func offering(t *testing.T, versions string, plugins ...string) *config.Network {
	t.Helper()
	return listWith(t, "", "red", `"cniVersions":["`+strings.ReplaceAll(versions, " ", `","`)+`"]`,
		plugins...)
}

const withIPAM = `{"type":"first","ipam":{"type":"ipam"}}`

// VER-05, VER-06, VER-10, VER-11: a network uses the newest offered version that all plugins and
// delegates support; ADD logs a warning if it is not the newest offered one.
func TestNegotiate(t *testing.T) {
	t.Parallel()
	const all = "0.3.1 0.4.0 1.0.0 1.1.0"
	for _, tt := range []struct {
		name     string
		plugins  map[string]script
		n        *config.Network
		want     string
		warning  string // of ADD; "" for none
		recorded cni.Version
	}{
		{"all support the newest", map[string]script{"first": {}, "second": {}, "ipam": {}},
			offering(t, all, withIPAM, "second"),
			"1.1.0", "", cni.V110},
		{"an older plugin", map[string]script{"first": {}, "second": answers("0.4.0", "1.0.0")},
			offering(t, all, "first", "second"),
			"1.0.0", "limitedBy=second", cni.V100},
		{"an older IPAM plugin", map[string]script{"first": {}, "ipam": answers("0.3.1", "0.4.0")},
			offering(t, all, withIPAM),
			"0.4.0", "limitedBy=ipam", cni.V040},
		{"versions with gaps", map[string]script{"first": answers("0.3.1", "1.0.0"),
			"second": answers("0.3.1", "0.4.0", "1.1.0")},
			offering(t, all, "first", "second"), "0.3.1", "limitedBy=first", cni.V031},
		{"unknown versions", map[string]script{"first": answers("2.0.0", "1.0.0")},
			offering(t, "1.0.0 2.0.0 0.4.0", "first"),
			"1.0.0", "", cni.V100},
		{"no common version", map[string]script{"first": answers("1.0.0"),
			"second": answers("0.4.0", "0.3.1")}, offering(t, all, "first", "second"),
			"1 network red: no CNI version out of [0.3.1 0.4.0 1.0.0 1.1.0] is supported by all plugins: first supports 1.0.0; second supports 0.4.0, 0.3.1", "", 0},
		{"a plugin that fails",
			map[string]script{"first": {cni.VersionCommand: fails(cni.CodeTryAgainLater, "busy")}},
			offering(t, all, "first"),
			"11 network red: first VERSION: busy", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tt.plugins)
			g, err := r.Negotiate(t.Context(), tt.n)
			got := describe(err)
			if err == nil {
				got = g.Version.String()
			}
			if got != tt.want {
				t.Errorf("got %s\nwant %s", got, tt.want)
			}
			r.entries()
			_, err = r.Add(t.Context(), tt.n, request("c1"))
			if (err == nil) != (tt.recorded != 0) {
				t.Fatal(describe(err))
			}
			if err != nil {
				r.wantRecorded()
				if c := cni.CodeOf(err); c != cni.CodeOf(errorOf(r.Negotiate(t.Context(), tt.n))) {
					t.Errorf("ADD: %s", describe(err))
				}
				return
			}
			for _, e := range r.entries() {
				if _, version, _ := cni.DecodeHeader(e.Stdin); e.Env.Command == cni.Add &&
					version != tt.want {
					t.Errorf("%s in %s", e, version)
				}
			}
			if log := r.log.String(); !strings.Contains(log, tt.warning) ||
				(log == "") != (tt.warning == "") {
				t.Errorf("log %q, want %q", log, tt.warning)
			}
			record, err := r.Record(request("c1").Attachment("red"))
			if err != nil || record.List.Version != tt.recorded {
				t.Errorf("recorded %v, %v", record, err)
			}
		})
	}
}

func errorOf(_ network.Negotiation, err error) error { return err }

// ENV-13, CFG-15, VER-10: CHECK and DEL use the version of the ADD, even if the plugins now support
// a newer one.
func TestNegotiatedVersionIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": answers("0.4.0")})
	n := offering(t, "0.4.0 1.1.0", "first")
	a := r.add(n)
	replace(t, filepath.Join(r.plugins, "first"))
	r.script("first", answers("0.4.0", "1.1.0"))
	if err := r.Check(t.Context(), a, n); err != nil {
		t.Error(err)
	}
	if err := r.Del(t.Context(), a, network.Fallback{Network: n}); err != nil {
		t.Error(err)
	}
	for _, e := range r.entries() {
		if _, version, _ := cni.DecodeHeader(e.Stdin); version != "0.4.0" {
			t.Errorf("%s in %s", e, version)
		}
	}
	r.add(n)
	if record, err := r.Record(a); err != nil || record.List.Version != cni.V110 {
		t.Errorf("afterwards: %v, %v", record, err)
	}
}

// replace replaces the file of a plugin.
func replace(t *testing.T, path string) {
	t.Helper()
	exe, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	if err := exefile.Write(path+".new", b); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// RT-STA-01, RT-GC-06: a network with a version that lacks STATUS and GC calls neither.
func TestNegotiatedVerbs(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": answers("1.0.0")})
	n := offering(t, "1.0.0 1.1.0", "first")
	if err := r.Status(t.Context(), n); err != nil {
		t.Error(err)
	}
	if err := r.GC(t.Context(), n, network.Keep{Attachments: []cni.ValidAttachment{}}); err != nil {
		t.Error(err)
	}
	if _, err := r.Validate(t.Context(), n); err != nil {
		t.Error(err)
	}
	r.wantCalls("VERSION first, VERSION first") // Validate always calls VERSION
}

// DEL is never refused: without a record and a common version, it uses the newest version.
func TestDelWithoutAgreement(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": answers("0.3.1")})
	n := offering(t, "1.0.0 1.1.0", "first")
	if err := r.Del(t.Context(), request("c1").Attachment("red"),
		network.Fallback{Network: n}); err != nil {
		t.Error(err)
	}
	r.wantCalls("VERSION first, DEL first")
}

// RT-VRS-01, EXE-17: a network with one version calls no VERSION. Otherwise each binary is asked
// once, and again when its file is replaced or changed.
func TestVersionsAreRemembered(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {}})
	both := offering(t, "1.0.0 1.1.0", "first", "second", "first")
	negotiate := func(c *network.Client, n *config.Network, want string) {
		t.Helper()
		if _, err := c.Negotiate(t.Context(), n); err != nil {
			t.Error(err)
		}
		r.wantCalls(want)
	}
	negotiate(r.Client, list(t, "1.1.0", "red", "first", "second"), "")
	if _, err := os.Stat(r.StateDir); !errors.Is(err, os.ErrNotExist) {
		t.Error("versions were stored:", err)
	}
	negotiate(r.Client, both, "VERSION first, VERSION second")
	negotiate(r.Client, both, "")
	// This client stands for another process.
	another := &network.Client{Isolated: true, Caller: r.Caller, PluginDirs: r.PluginDirs,
		StateDir: r.StateDir}
	negotiate(another, both, "")
	replace(t, filepath.Join(r.plugins, "second"))
	negotiate(r.Client, both, "VERSION second")

	path := filepath.Join(r.plugins, "second")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	// A write that restores mtime changes only ctime.
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	negotiate(another, both, "VERSION second")

	store := filepath.Join(r.StateDir, "versions.json")
	if info, err := os.Stat(store); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for _, damage := range []string{"", "{", `{"kind":"tenonVersionsV1"}`,
		`{"kind":"other","executables":{}}`,
		`{"kind":"tenonVersionsV1","executables":{"` + path + `":{"versions":["x"]}}}`} {
		if err := os.WriteFile(store, []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		negotiate(r.Client, both, "VERSION first, VERSION second")
		negotiate(another, both, "")
	}

	// A directory that is not writable costs only time.
	blocked := &network.Client{Isolated: true, Caller: r.Caller, PluginDirs: r.PluginDirs,
		StateDir: filepath.Join(store, "x"), Log: quiet}
	negotiate(blocked, both, "VERSION first, VERSION second")
	negotiate(blocked, both, "VERSION first, VERSION second")
}

// The cache drops plugins that no longer exist.
func TestVersionsOfRemovedPlugins(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {}})
	for _, typ := range []string{"first", "second"} {
		if _, err := r.Negotiate(t.Context(), offering(t, "1.0.0 1.1.0", typ)); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(r.plugins, "first")); err != nil && typ == "first" {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(r.StateDir, "versions.json"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "first") || !strings.Contains(string(b), "second") {
		t.Errorf("stored %s", b)
	}
}

// The error about a missing binary wraps invoke.ErrNotFound. A missing delegate counts only if its
// versions are needed.
func TestNegotiateMissing(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	for _, n := range []*config.Network{list(t, "1.1.0", "red", "absent"),
		offering(t, "1.0.0 1.1.0", "first", "absent"), offering(t, "1.0.0 1.1.0", withIPAM)} {
		if _, err := r.Add(t.Context(), n, request("c1")); !errors.Is(err, invoke.ErrNotFound) ||
			cni.CodeOf(err) != cni.CodeInvalidConfig {
			t.Errorf("got %s", describe(err))
		}
		r.wantRecorded()
	}
}

// VER-05, VER-06: all combinations of offered versions and the versions of two plugins, compared
// with a simple computation.
func TestNegotiateCombinations(t *testing.T) {
	t.Parallel()
	sets := subsets([]cni.Version{cni.V040, cni.V100, cni.V110})
	for _, offered := range sets {
		for _, a := range sets {
			for _, b := range sets {
				var want cni.Version
				for _, v := range offered {
					if slices.Contains(a, v) && slices.Contains(b, v) {
						want = max(want, v)
					}
				}
				if len(offered) == 1 {
					want = offered[0] // no VERSION call; the plugin may refuse it
				}
				called := map[cni.Version]bool{}
				c := &network.Client{Isolated: true, Caller: invoke.Fake{"a": supporting(a, called),
					"b": supporting(b, called)}, StateDir: t.TempDir(), Log: quiet}
				offer, err := json.Marshal(offered)
				if err != nil {
					t.Fatal(err)
				}
				n := listWith(t, offered[0].String(), "red", `"cniVersions":`+string(offer), "a",
					"b")
				if err := c.Status(t.Context(), n); (err == nil) != (want != 0) {
					t.Errorf("%v, %v, %v: %s", offered, a, b, describe(err))
				}
				if want == cni.V110 != called[cni.V110] || called[cni.V040] || called[cni.V100] {
					t.Errorf("%v, %v, %v: called %v, want %v", offered, a, b, called, want)
				}
			}
		}
	}
}

// supporting is a plugin that supports some versions and records the versions of its requests.
func supporting(
	versions []cni.Version, called map[cni.Version]bool,
) map[cni.Command]invoke.Handler {
	r := cni.VersionReply{CNIVersion: "1.1.0"}
	for _, v := range versions {
		r.Supported = append(r.Supported, v.String())
	}
	return map[cni.Command]invoke.Handler{
		cni.VersionCommand: invoke.Print(string(r.Encode())),
		cni.Status: func(_ context.Context, c invoke.Call) ([]byte, bool) {
			stdin := c.Stdin
			_, text, _ := cni.DecodeHeader(stdin)
			v, _ := cni.ParseVersion(text)
			called[v] = true
			return nil, true
		},
	}
}

func subsets(all []cni.Version) [][]cni.Version {
	var sets [][]cni.Version
	for bits := 1; bits < 1<<len(all); bits++ {
		var set []cni.Version
		for i, v := range all {
			if bits&(1<<i) != 0 {
				set = append(set, v)
			}
		}
		sets = append(sets, set)
	}
	return sets
}
