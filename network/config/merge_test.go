package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network/config"
)

// conf returns a network with the given plugins.
func conf(name string, plugins ...string) string {
	var objects []string
	for _, typ := range plugins {
		objects = append(objects, fmt.Sprintf(`{"type":%q}`, typ))
	}
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":%q,"plugins":[%s]}`, name,
		strings.Join(objects, ","))
}

// needs returns a policy.
func needs(types string) string { return fmt.Sprintf(`{"requiredPlugins":{"*":[%q]}}`, types) }

// inUse formats a snapshot: networks with their chains, the plugins that the policy requires, and
// problems with their age.
func inUse(s *config.Snapshot, dir string) string {
	var lines []string
	for _, n := range s.Networks {
		lines = append(lines, n.Name+" ("+types(n)+")")
	}
	if s.Policy != nil {
		requires := strings.Join(s.Policy.Required("red"), ",")
		if s.Policy.RequiredPlugins == nil {
			requires = "?"
		}
		lines = append(lines, "policy "+requires)
	}
	for _, p := range s.Problems {
		line := "! "
		if p.Kept {
			line = "kept: "
		}
		if p.Network != "" {
			line += p.Network + ": "
		}
		line += p.Err.Error()
		if age := s.Read.Sub(p.Since); age > 0 {
			line += fmt.Sprintf(" since %v", age)
		}
		lines = append(lines, line)
	}
	return strings.ReplaceAll(strings.Join(lines, "\n"), dir, "DIR")
}

// step is the content of the directory after some time, and the configuration in use then.
type step struct {
	after time.Duration
	files map[string]string
	want  string
}

const (
	eof       = "network configuration: unexpected end of JSON input"
	empty     = "network configuration: document is empty"
	goneRed   = "kept: red: DIR/10.conflist: network red has disappeared; it stays in use for 2s"
	stays     = "has disappeared; it stays in use because too few networks would be left"
	noNetwork = "DIR: no network configuration"
)

// each state of a directory, after the networks in use before, yields the networks
// in use now.
func TestMerge(t *testing.T) {
	t.Parallel()
	red, blue, green := conf("red", "a"), conf("blue", "b"), conf("green", "c")
	for name, row := range map[string]struct {
		min   int
		steps []step
	}{
		"an empty directory": {0, []step{
			{0, nil, "! " + noNetwork},
			{5 * time.Second, map[string]string{"x.yaml": red}, "! " + noNetwork + " since 5s"},
			{0, map[string]string{"10.conflist": red}, "red (a)"},
		}},
		"networks are in the order of paths, regardless of kind": {0, []step{
			{0, map[string]string{"30.conflist": red, "10.conf": `{"name":"blue","type":"b"}`,
				"20.json": `{"name":"green","type":"c"}`}, "blue (b)\ngreen (c)\nred (a)"},
		}},
		"each name once, lists before single plugins": {0, []step{
			{0, map[string]string{"10.conf": `{"name":"red","type":"s"}`, "20.conflist": red,
				"30.conflist": conf("red", "z")}, "red (a)"},
		}},
		"a broken file hides no other": {0, []step{
			{0, map[string]string{"00.conflist": "{", "10.conflist": red},
				"red (a)\n! DIR/00.conflist:1:1: " + eof},
		}},
		"a broken file keeps its last good version": {0, []step{
			{0, map[string]string{"10.conflist": red, "20.conflist": blue}, "red (a)\nblue (b)"},
			{time.Second, map[string]string{"10.conflist": red[:40],
				"20.conflist": conf("blue", "d")},
				"red (a)\nblue (d)\nkept: red: DIR/10.conflist:1:40: " + eof},
			{time.Hour, map[string]string{"10.conflist": red[:41], "20.conflist": blue},
				"red (a)\nblue (b)\nkept: red: DIR/10.conflist:1:41: " + eof + " since 1h0m0s"},
			{time.Second, map[string]string{"10.conflist": conf("red", "n"), "20.conflist": blue},
				"red (n)\nblue (b)"},
		}},
		"an empty file keeps it, too": {0, []step{
			{0, map[string]string{"10.conflist": red, "20.conflist": blue}, "red (a)\nblue (b)"},
			{time.Hour, map[string]string{"10.conflist": "", "20.conflist": blue},
				"red (a)\nblue (b)\nkept: red: DIR/10.conflist: " + empty},
		}},
		"a broken file that states another name keeps it, too": {0, []step{
			{0, map[string]string{"10.conflist": red, "20.conflist": blue}, "red (a)\nblue (b)"},
			{time.Hour, map[string]string{"10.conflist": `{"name":"green",`, "20.conflist": blue},
				"red (a)\nblue (b)\nkept: red: DIR/10.conflist:1:16: " + eof},
		}},
		"a network in a new file is used even if the old file is broken": {0, []step{
			{0, map[string]string{"10.conflist": red}, "red (a)"},
			{0, map[string]string{"10.conflist": "", "20.conflist": conf("red", "n")},
				"red (n)\n! DIR/10.conflist: " + empty},
		}},
		"a broken file that comes first takes the name": {0, []step{
			{0, map[string]string{"10.conflist": red}, "red (a)"},
			{0, map[string]string{"00.conflist": `{"name":"red",`, "10.conflist": red},
				"red (a)\nkept: red: DIR/00.conflist:1:14: " + eof},
		}},
		"without an earlier version nothing has the name": {0, []step{
			{0, map[string]string{"00.conflist": `{"name":"red",`, "10.conflist": red},
				"! red: DIR/00.conflist:1:14: " + eof},
		}},
		"a broken file that comes later does not take the name": {0, []step{
			{0, map[string]string{"10.conflist": red}, "red (a)"},
			{0, map[string]string{"10.conflist": conf("red", "n"), "20.conflist": `{"name":"red",`},
				"red (n)\n! red: DIR/20.conflist:1:14: " + eof},
		}},
		"a broken drop-in keeps the chain": {0, []step{
			{0, map[string]string{"10.conflist": red, "red/x.conf": `{"type":"x"}`}, "red (a,x)"},
			{time.Hour, map[string]string{"10.conflist": conf("red", "n"), "red/x.conf": ""},
				"red (a,x)\nkept: red: DIR/10.conflist: drop-in DIR/red/x.conf: plugin configuration: document is empty"},
		}},
		"a network that has disappeared lingers": {0, []step{
			{0, map[string]string{"10.conflist": red, "20.conflist": blue}, "red (a)\nblue (b)"},
			{time.Hour, map[string]string{"20.conflist": blue}, "red (a)\nblue (b)\n" + goneRed},
			{2*time.Second - 1, map[string]string{"20.conflist": blue}, "red (a)\nblue (b)\n" +
				goneRed + " since 1.999999999s"},
			{1, map[string]string{"20.conflist": blue}, "blue (b)"},
		}},
		"a network that returns in time was never missing": {0, []step{
			{0, map[string]string{"10.conflist": red, "20.conflist": blue}, "red (a)\nblue (b)"},
			{0, map[string]string{"20.conflist": blue}, "red (a)\nblue (b)\n" + goneRed},
			{time.Second, map[string]string{"10.conflist": red, "20.conflist": blue},
				"red (a)\nblue (b)"},
			{2 * time.Second, map[string]string{"20.conflist": blue}, "red (a)\nblue (b)\n" +
				goneRed},
		}},
		"a network that was broken for long lingers when it disappears": {0, []step{
			{0, map[string]string{"10.conflist": red, "20.conflist": blue}, "red (a)\nblue (b)"},
			{0, map[string]string{"10.conflist": "", "20.conflist": blue},
				"red (a)\nblue (b)\nkept: red: DIR/10.conflist: " + empty},
			{time.Hour, map[string]string{"20.conflist": blue}, "red (a)\nblue (b)\n" + goneRed},
		}},
		"a network moves with its file": {0, []step{
			{0, map[string]string{"10.conflist": red, "20.conflist": blue}, "red (a)\nblue (b)"},
			{0, map[string]string{"30.conflist": red, "20.conflist": blue}, "blue (b)\nred (a)"},
		}},
		"a renamed network does not linger": {0, []step{
			{0, map[string]string{"10.conflist": red}, "red (a)"},
			{0, map[string]string{"10.conflist": green}, "green (c)"},
		}},
		"the last networks stay forever": {0, []step{
			{0, map[string]string{"10.conflist": red, "20.conflist": blue,
				"tenon.policy": needs("a")}, "red (a)\nblue (b)\npolicy a"},
			{time.Hour, nil, "red (a)\nblue (b)\npolicy a\nkept: " + noNetwork +
				"\nkept: red: DIR/10.conflist: network red " + stays +
				"\nkept: blue: DIR/20.conflist: network blue " + stays +
				"\nkept: DIR/tenon.policy: the policy has disappeared along with the networks; it stays in use as long as they do"},
			{time.Hour, map[string]string{"x.yaml": red}, "red (a)\nblue (b)\npolicy a\nkept: " +
				noNetwork + " since 1h0m0s\nkept: red: DIR/10.conflist: network red " + stays +
				" since 1h0m0s\nkept: blue: DIR/20.conflist: network blue " + stays +
				" since 1h0m0s\nkept: DIR/tenon.policy: the policy has disappeared along with the networks; it stays in use as long as they do since 1h0m0s"},
			// The directory is filled again file by file; meanwhile all networks stay in use.
			{time.Hour, map[string]string{"20.conflist": blue}, "red (a)\nblue (b)\npolicy a\n" +
				goneRed +
				"\nkept: DIR/tenon.policy: the policy has disappeared; it stays in use for 2s"},
			{2 * time.Second, map[string]string{"20.conflist": blue}, "blue (b)"},
		}},
		"the minimum number of networks stays": {2, []step{
			{0, map[string]string{"10.conflist": red},
				"red (a)\n! DIR: usable networks: 1; at least 2 are required"},
			{0, map[string]string{"10.conflist": red, "20.conflist": blue, "30.conflist": green},
				"red (a)\nblue (b)\ngreen (c)"},
			{0, map[string]string{"20.conflist": blue, "30.conflist": green},
				"red (a)\nblue (b)\ngreen (c)\n" + goneRed},
			{2 * time.Second, map[string]string{"20.conflist": blue, "30.conflist": green},
				"blue (b)\ngreen (c)"},
			{time.Second, map[string]string{"20.conflist": blue},
				"blue (b)\ngreen (c)\nkept: DIR: usable networks: 1; at least 2 are required\nkept: green: DIR/30.conflist: network green " + stays},
			{time.Hour, map[string]string{"20.conflist": "", "30.conflist": green},
				"blue (b)\ngreen (c)\nkept: blue: DIR/20.conflist: " + empty},
		}},
		"a drop-in that disappears lingers": {0, []step{
			{0, map[string]string{"10.conflist": red, "red/x.conf": `{"type":"x"}`,
				"red/y.conf": `{"type":"y"}`}, "red (a,x,y)"},
			{0, map[string]string{"10.conflist": red, "red/y.conf": `{"type":"y"}`},
				"red (a,x,y)\nkept: red: DIR/red: network red: drop-in DIR/red/x.conf has disappeared; the network stays in use with it for 2s"},
			// Another missing drop-in does not prolong the delay.
			{time.Second, map[string]string{"10.conflist": conf("red", "n"),
				"red/x.conf": `{"type":"x"}`},
				"red (a,x,y)\nkept: red: DIR/red: network red: drop-in DIR/red/y.conf has disappeared; the network stays in use with it for 2s since 1s"},
			{time.Second, map[string]string{"10.conflist": conf("red", "n"),
				"red/y.conf": `{"type":"y"}`}, "red (n,y)"},
		}},
		"a new drop-in is used at once": {0, []step{
			{0, map[string]string{"10.conflist": red, "red/x.conf": `{"type":"x"}`}, "red (a,x)"},
			{0, map[string]string{"10.conflist": red, "red/x.conf": `{"type":"x"}`,
				"red/y.conf": `{"type":"y"}`}, "red (a,x,y)"},
		}},
		"drop-ins that a list no longer takes do not linger": {0, []step{
			{0, map[string]string{"10.conflist": red, "red/x.conf": `{"type":"x"}`}, "red (a,x)"},
			{0, map[string]string{"10.conflist": `{"cniVersion":"1.1.0","loadOnlyInlinedPlugins":true,` + red[1:]}, "red (a)"},
		}},
		"a version that the policy forbids is not used": {0, []step{
			{0, map[string]string{"10.conflist": conf("red", "a", "mesh"),
				"tenon.policy": needs("mesh")}, "red (a,mesh)\npolicy mesh"},
			{time.Hour, map[string]string{"10.conflist": red, "tenon.policy": needs("mesh")},
				"red (a,mesh)\npolicy mesh\nkept: red: DIR/10.conflist: network red lacks the plugin mesh, which DIR/tenon.policy requires: its plugins are: a"},
			{time.Hour, map[string]string{"10.conflist": red, "tenon.policy": needs("a")},
				"red (a)\npolicy a"},
		}},
		"unless the policy forbids the old version, too": {0, []step{
			{0, map[string]string{"10.conflist": red}, "red (a)"},
			{0, map[string]string{"10.conflist": red, "tenon.policy": needs("mesh")},
				"red (a)\npolicy mesh"},
			{0, map[string]string{"10.conflist": conf("red", "n"), "tenon.policy": needs("mesh")},
				"red (n)\npolicy mesh"},
		}},
		"a policy that cannot be read keeps the last good one": {0, []step{
			{0, map[string]string{"10.conflist": red, "tenon.policy": needs("a")},
				"red (a)\npolicy a"},
			{time.Hour, map[string]string{"10.conflist": red, "tenon.policy": ""},
				"red (a)\npolicy a\nkept: DIR/tenon.policy: policy: unexpected end of JSON input"},
			{time.Hour, map[string]string{"10.conflist": red},
				"red (a)\npolicy a\nkept: DIR/tenon.policy: the policy has disappeared; it stays in use for 2s"},
			{2 * time.Second, map[string]string{"10.conflist": red}, "red (a)"},
		}},
		"a policy that cannot be read forbids everything if there was none before": {0, []step{
			{0, map[string]string{"10.conflist": red}, "red (a)"},
			{0, map[string]string{"10.conflist": conf("red", "n"), "tenon.policy": "{"},
				"red (n)\npolicy ?\n! DIR/tenon.policy:1:1: policy: unexpected end of JSON input"},
			{0, map[string]string{"10.conflist": red, "tenon.policy": needs("a")},
				"red (a)\npolicy a"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(1_000_000_000, 0)
			root := t.TempDir()
			dir := filepath.Join(root, "net.d")
			s := &config.Snapshot{Dir: dir}
			for i, step := range row.steps {
				now = now.Add(step.after)
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(tree(t, step.files), dir); err != nil {
					t.Fatal(err)
				}
				c := discover(t, dir)
				before := inUse(s, dir)
				next := config.Merge(s, c, now, row.min, 2*time.Second)
				if diff := cmp.Diff(step.want, inUse(next, dir)); diff != "" {
					t.Fatalf("step %d (-want +got):\n%s", i+1, diff)
				}
				if inUse(s, dir) != before || next.Generation != s.Generation+1 ||
					!next.Read.Equal(now) {
					t.Errorf("step %d: generation %d after %d, read at %v", i+1, next.Generation,
						s.Generation, next.Read)
				}
				s = next
			}
		})
	}
}

// a directory that cannot be read keeps the networks and errors of the last read. Before the
// first read the required plugins are unknown, so no network is allowed.
func TestMergeCannotRead(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"10.conflist": conf("red", "a"), "20.conflist": "{",
		"tenon.policy": needs("a")})
	c := discover(t, dir)
	now := time.Unix(1_000_000_000, 0)
	wrong := cni.Errorf(cni.CodeIOFailure, "configuration directory: %w", os.ErrPermission)

	s := config.CannotRead(&config.Snapshot{Dir: dir}, wrong, now)
	const want = "policy ?\n! DIR: configuration directory: permission denied"
	if got := inUse(s, dir); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := s.Policy.Check(list(t, "1.1.0", "red", "a")); !errors.Is(err, os.ErrPermission) {
		t.Error(describe(err))
	}
	if _, err := s.Network("red"); !errors.Is(err, os.ErrPermission) ||
		cni.CodeOf(err) != cni.CodeIOFailure {
		t.Error(describe(err))
	}
	nothing, err := config.Discover(t.TempDir())
	must(t, err)
	if s := config.Merge(s, nothing, now, 0, time.Hour); s.Policy != nil {
		t.Error("there is no policy, and everything is forbidden")
	}
	s = config.CannotRead(config.Merge(s, c, now, 0, 0), wrong, now)
	s = config.CannotRead(s, wrong, now.Add(time.Second))
	if diff := cmp.Diff("red (a)\npolicy a\nkept: DIR: configuration directory: permission denied since 1s\n! DIR/20.conflist:1:1: "+eof+" since 1s", inUse(s, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Snapshot.Network reports why a network is missing.
func TestSnapshotNetwork(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"10.conflist": conf("red", "a"),
		"20.conflist": `{"name":"blue",`, "30.conflist": ""})
	snapshot := func(dir string) *config.Snapshot {
		c := discover(t, dir)
		return config.Merge(&config.Snapshot{Dir: dir}, c, time.Now(), 0, 0)
	}
	s := snapshot(dir)
	if n, err := s.Network("red"); err != nil || types(n) != "a" {
		t.Error(describe(err))
	}
	nothing, broken := snapshot(t.TempDir()),
		snapshot(tree(t, map[string]string{"10.conflist": "{"}))
	for _, row := range []struct {
		s        *config.Snapshot
		name     string
		want     string
		sentinel error
	}{
		{s, "blue", "6 DIR/20.conflist:1:15: " + eof, nil},
		{s, "green",
			`999 network "green" in DIR: no network of that name (there are: red; broken: DIR/20.conflist, DIR/30.conflist)`, config.ErrNotFound},
		{s, "../red",
			`7 network name "../red" is not valid: it must start with a letter or digit and hold only letters, digits, '_', '.' and '-'`, nil},
		{nothing, "red", "999 DIR: no network configuration", config.ErrNoConfig},
		{broken, "red",
			`999 network "red" in DIR: no network of that name (none can be used; broken: DIR/10.conflist)`, config.ErrNotFound},
	} {
		_, err := row.s.Network(row.name)
		if got := strings.ReplaceAll(describe(err), row.s.Dir, "DIR"); got != row.want ||
			row.sentinel != nil && !errors.Is(err, row.sentinel) {
			t.Errorf("%s:\ngot  %s\nwant %s", row.name, got, row.want)
		}
	}
	want := "50 DIR/20.conflist:1:15: " + eof + "\nDIR/30.conflist: " + empty
	if got := strings.ReplaceAll(describe(s.Err()), dir, "DIR"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	dir = tree(t, map[string]string{"10.conflist": conf("red", "a")})
	if err := snapshot(dir).Err(); err != nil {
		t.Error(describe(err))
	}
}

// However a file is truncated or damaged, the network in use is the previous version or exactly the
// content of the file.
func FuzzMergeDamage(f *testing.F) {
	const before = `{"cniVersion":"1.1.0","name":"red","version":1,"plugins":[{"type":"a","v":1},{"type":"b","v":1}]}`
	after := strings.ReplaceAll(before, "1}", "2}")
	for i := range len(after) {
		f.Add(uint16(i), byte(0), uint16(i%7))
		f.Add(uint16(i), byte(1<<(i%8)), uint16(len(after)))
	}
	f.Fuzz(func(t *testing.T, at uint16, flip byte, length uint16) {
		dir := t.TempDir()
		path := filepath.Join(dir, "10.conflist")
		load := func(old *config.Snapshot, content []byte) *config.Snapshot {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			c := discover(t, dir)
			return config.Merge(old, c, time.Now(), 0, time.Second)
		}
		s := load(&config.Snapshot{Dir: dir}, []byte(before))
		damaged := []byte(after)
		damaged[int(at)%len(damaged)] ^= flip
		damaged = damaged[:int(length)%(len(damaged)+1)]
		s = load(s, damaged)
		if len(s.Networks) != 1 {
			t.Fatalf("%q: %d networks", damaged, len(s.Networks))
		}
		want, err := config.LoadFile(path)
		if err != nil {
			want = list(t, "1.1.0", "red", `{"type":"a","v":1}`, `{"type":"b","v":1}`)
		}
		n := s.Networks[0]
		same := n.Name == want.Name && slices.EqualFunc(n.Plugins, want.Plugins,
			func(a, b *cni.PluginConfig) bool {
				return fmt.Sprintf("%+v", *a) == fmt.Sprintf("%+v", *b)
			})
		if !same || (err != nil) != (len(s.Problems) == 1) {
			t.Errorf("%q: %s (%s), problems %v", damaged, n.Name, types(n), s.Problems)
		}
	})
}
