package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
)

func TestNetnsPath(t *testing.T) {
	t.Parallel()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]string{
		"web":                "/run/netns/web",
		"4711":               "/proc/4711/ns/net",
		"47x":                "/run/netns/47x",
		"/run/netns/web":     "/run/netns/web",
		"/var/run/netns/web": "/run/netns/web",
		"/proc/1/ns/../ns/n": "/proc/1/ns/n",
		"./web":              filepath.Join(wd, "web"),
	} {
		if got, err := netnsPath(arg); got != want || err != nil {
			t.Errorf("%s: got %s, %v; want %s", arg, got, err, want)
		}
	}
}

// The container ID is the name of the namespace or, if that is not a valid ID, the hash of TOOL-03
// with another prefix (computed with sha512sum(1)).
func TestDefaultID(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/run/netns/web":          "web",
		"/run/docker/netns/3f.b_": "3f.b_",
		"/run/netns/-web":         hashedID("/run/netns/-web"),
		"/run/netns/a b":          hashedID("/run/netns/a b"),
		"/proc/4711/ns/net":       hashedID("/proc/4711/ns/net"),
	} {
		if got := defaultID(path); got != want || cni.ValidateContainerID(got) != nil {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	if got, want := hashedID("/run/netns/web"), "tenon-82e215debf7df4651d36"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	got, err := capabilities(
		`{"mac": "a", "ips": []}`,
		[]string{`mac="b"`, ` {"bandwidth": {"x": 1}, "aliases": ["y"]}`, `aliases=["z=1"]`},
	)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]json.RawMessage{
		"mac": []byte(
			`"b"`,
		), "ips": []byte(`[]`), "bandwidth": []byte(`{"x": 1}`), "aliases": []byte(`["z=1"]`),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, wrong := range []string{`mac`, `=1`, `mac=`, `mac=x`, `{`, `{"mac"}`} {
		if _, err := capabilities("", []string{wrong}); !errors.As(err, new(usageError)) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if _, err := capabilities(`[]`, nil); !errors.As(err, new(usageError)) {
		t.Errorf("CAP_ARGS: %v", err)
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		keep keep
		want []cni.ValidAttachment // nil: refused, or recorded attachments
	}{
		"no flag":        {keep{}, nil},
		"two flags":      {keep{none: true, recorded: true}, nil},
		"none":           {keep{none: true}, []cni.ValidAttachment{}},
		"recorded":       {keep{recorded: true, allRuntimes: true}, nil},
		"named":          {keep{named: []string{"b/eth1", "c/eth0.5"}}, []cni.ValidAttachment{{ContainerID: "b", IfName: "eth1"}, {ContainerID: "c", IfName: "eth0.5"}}},
		"no interface":   {keep{named: []string{"b/"}}, nil},
		"no container":   {keep{named: []string{"/eth0"}}, nil},
		"three parts":    {keep{named: []string{"n/b/eth0"}}, nil},
		"named and none": {keep{named: []string{"b/eth1"}, none: true}, nil},
	} {
		got, err := row.keep.inUse()
		refused := row.want == nil && name != "recorded"
		want := network.Keep{Attachments: row.want}
		if !refused {
			want.Recorded, want.AllRuntimes = row.keep.recorded, row.keep.allRuntimes
		}
		if diff := cmp.Diff(want, got); diff != "" || errors.As(err, new(usageError)) != refused {
			t.Errorf("%s: %v, (-want +got)\n%s", name, err, diff)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[uint64]string{254: "254", 1 << 32: "4294967296", 1 << 56: "about 2^56", math.MaxUint64: "about 2^64 or more"} {
		if got := size(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

// An error is printed on one line, each further joined error on a line of its own, then the hints:
// details, and the added hints, inner ones first.
func TestReport(t *testing.T) {
	t.Parallel()
	coded := cni.Errorf(cni.CodeTryAgainLater, "no address").WithDetails("all\nare taken")
	for name, row := range map[string]struct {
		err            error
		stderr, stdout string
		status         int
	}{
		"none":  {},
		"plain": {errors.New("wrong"), "tenon: sub: wrong\n", `{"cniVersion":"1.1.0","code":999,"msg":"wrong"}` + "\n", 1},
		"coded": {
			fmt.Errorf("network pods: %w", coded), "tenon: sub: network pods: no address\nhint: all are taken\n",
			`{"cniVersion":"1.1.0","code":11,"msg":"network pods: no address","details":"all\nare taken"}` + "\n", 1,
		},
		"several": {
			attachmentError{fmt.Errorf("pods/a/eth0: %w", errors.Join(coded, errors.New("second")))},
			"tenon: sub pods/a/eth0: no address\n  and second\nhint: all are taken\n",
			`{"cniVersion":"1.1.0","code":11,"msg":"pods/a/eth0: no address\nsecond","details":"all\nare taken"}` + "\n", 1,
		},
		"hints": {
			hint(fmt.Errorf("outer: %w", hint(errors.New("inner"), "first")), "second"),
			"tenon: sub: outer: inner\nhint: first\nhint: second\n", `{"cniVersion":"1.1.0","code":999,"msg":"outer: inner"}` + "\n", 1,
		},
		"usage": {
			usageError{hint(errors.New("nonsense"), "sense")},
			"tenon: sub: nonsense\nhint: sense\nhint: tenon sub --help\n", `{"cniVersion":"1.1.0","code":999,"msg":"nonsense"}` + "\n", 2,
		},
		"silent": {exitStatus(3), "", "", 3},
	} {
		a := &app{stdout: &output{file: temporary(t)}, stderr: newOutput(temporary(t))}
		root := &cobra.Command{Use: "tenon"}
		sub := &cobra.Command{Use: "sub", Run: func(*cobra.Command, []string) {}}
		(&settings{app: a}).outputFlags(sub)
		root.AddCommand(sub)
		if err := sub.Flags().Set("json", "true"); err != nil {
			t.Fatal(err)
		}
		if status := a.report(sub, row.err); status != row.status {
			t.Errorf("%s: exit status %d, want %d", name, status, row.status)
		}
		if diff := cmp.Diff(row.stderr, content(t, a.stderr.file)); diff != "" {
			t.Errorf("%s: stderr (-want +got)\n%s", name, diff)
		}
		if diff := cmp.Diff(row.stdout, content(t, a.stdout.file)); diff != "" {
			t.Errorf("%s: stdout (-want +got)\n%s", name, diff)
		}
	}
}

func temporary(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func content(t *testing.T, f *os.File) string {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
