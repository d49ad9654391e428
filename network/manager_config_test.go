package network_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// directory writes files, given by name, and opens their directory. It also returns the path.
func (r *rig) directory(files map[string]string) (*config.Directory, string) {
	r.t.Helper()
	dir := r.t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	f, err := config.Open(config.Options{Dir: dir, NoWatch: true, Rescan: -1, Linger: -1,
		Log: quiet})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := f.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return f, dir
}

func conflist(name, plugin string) string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":%q,"plugins":[{"type":%q}]}`, name, plugin)
}

// Setup attaches to the networks of a directory in the order of its files, up to Max, after
// loopback. DEL and Detach do not need these networks.
func TestManagerOfDirectory(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"loopback": {}, "p": {}})
	f, dir := r.directory(map[string]string{
		"20-a.conflist": conflist("a", "p"), "10-b.conflist": conflist("b", "p"),
		"30-c.conflist": conflist("c", "p"),
	})
	m := r.manager(func(o *network.ManagerOptions) {
		o.Config, o.Min, o.Max, o.Loopback = f, 1, 2, true
	})
	s, err := m.Setup(t.Context(), sandbox("c1", nil))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range s.Attachments {
		got = append(got, a.Attachment.String())
	}
	if want := "cni-loopback/c1/lo b/c1/eth0 a/c1/eth1"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if p := s.Primary(); p == nil || p.Attachment.Network != "b" {
		t.Errorf("primary %v", p)
	}
	if _, err := m.Attach(t.Context(), "c1", request("c1").Parameters,
		network.Join{Name: "c", IfName: "eth2"}); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	f.Reload()
	r.entries()
	if err := m.Detach(t.Context(),
		cni.Attachment{Network: "c", Container: "c1", IfName: "eth2"}); err != nil {
		t.Error(err)
	}
	if err := m.Remove(t.Context(), "c1", nil); err != nil {
		t.Error(err)
	}
	r.wantCalls("DEL p, DEL p, DEL p, DEL loopback")
	r.wantNothing()
}

// Status reports why Setup would not work, and Setup fails for the same reason.
func TestManagerStatus(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		files map[string]string
		code  cni.Code // 0: ready
		text  string
		setup string // error of Setup; empty: success
	}{
		{"ready", map[string]string{"1.conflist": conflist("a", "p")}, 0, "", ""},
		{"no configuration", nil, cni.CodeNotAvailable, "found 0 networks, need at least 1",
			"found 0 networks, need at least 1"},
		{"a plugin is missing", map[string]string{"1.conflist": conflist("a", "absent")},
			cni.CodeNotAvailable, `network a: plugin "absent" not found`,
			`plugin "absent" not found`},
		{"the IPAM plugin is missing",
			map[string]string{"1.conflist": `{"cniVersion":"1.1.0","name":"a","plugins":[{"type":"p","ipam":{"type":"absent"}}]}`},
			cni.CodeNotAvailable, `plugin "absent" not found`, ""},
		{"a plugin reports an error", map[string]string{"1.conflist": conflist("a", "no")}, 51,
			"network a: no STATUS: uplink", ""},
		{"a file is broken", map[string]string{"1.conflist": conflist("a", "p"), "2.conflist": "{"},
			cni.CodeNotAvailable, "2.conflist", ""},
		{"a required plugin is missing", map[string]string{"1.conflist": conflist("a", "p"),
			"tenon.policy": `{"requiredPlugins":{"*":["q"]}}`},
			cni.CodeNotAvailable, "lacks the plugin q", "lacks the plugin q"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]script{"loopback": {}, "p": {},
				"no": {cni.Status: fails(51, "uplink")}})
			f, _ := r.directory(tt.files)
			m := r.manager(func(o *network.ManagerOptions) {
				o.Config, o.Min, o.Loopback = f, 1, true
			})
			err := m.Status(t.Context())
			if tt.code == 0 && err != nil || tt.code != 0 &&
				(cni.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.text)) {
				t.Errorf("status %s", describe(err))
			}
			_, err = m.Setup(t.Context(), sandbox("c1", nil))
			if tt.setup == "" && err != nil || tt.setup != "" &&
				(err == nil || !strings.Contains(err.Error(), tt.setup)) {
				t.Errorf("setup %s", describe(err))
			}
		})
	}
}

// A broken file is an error if it could contain one of the networks of Setup.
func TestManagerStatusOfOtherFiles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		broken string
		max    int
		ready  bool
	}{
		{"10.conflist", 1, false}, {"30.conflist", 1, true}, {"30.conf", 1, true},
		{"30.conflist", 2, false}, {"30.conflist", 0, false},
		{"tenon.policy", 1, false},
	} {
		r := newRig(t, map[string]script{"p": {}})
		f, _ := r.directory(map[string]string{"20.conflist": conflist("a", "p"), tt.broken: "{"})
		m := r.manager(func(o *network.ManagerOptions) { o.Config, o.Max = f, tt.max })
		if err := m.Status(t.Context()); (err == nil) != tt.ready {
			t.Errorf("%s, at most %d: %s", tt.broken, tt.max, describe(err))
		}
	}
}

// An answer stays valid for a while, unless the configuration changes or the call was cancelled.
func TestManagerStatusIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"p": {}, "slow": {cni.Status: {Stay: time.Minute}}})
	f, dir := r.directory(map[string]string{"1.conflist": conflist("a", "p")})
	m := r.manager(func(o *network.ManagerOptions) { o.Config, o.StatusFor = f, time.Hour })
	write := func(plugin string) {
		if err := os.WriteFile(filepath.Join(dir, "1.conflist"), []byte(conflist("a", plugin)),
			0o600); err != nil {
			t.Fatal(err)
		}
		f.Reload()
	}
	for range 3 {
		if err := m.Status(t.Context()); err != nil {
			t.Error(err)
		}
	}
	r.wantCalls("STATUS p")
	write("slow")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := m.Status(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a status that takes too long: %s", describe(err))
	}
	write("p")
	if err := m.Status(t.Context()); err != nil {
		t.Error(err)
	}
	r.wantCalls("STATUS p")
}

// neither Status nor a reload waits for an ADD that hangs.
func TestStatusWhileAddHangs(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"p": {}})
	r.shell("stuck", `[ "$CNI_COMMAND" = ADD ] || exit 0
touch "$dir/started"; exec sleep 600`)
	f, dir := r.directory(map[string]string{"1.conflist": conflist("a", "stuck")})
	m := r.manager(func(o *network.ManagerOptions) { o.Config = f })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := m.Setup(ctx, sandbox("c1", nil))
		done <- err
	}()
	waitForPath(t, filepath.Join(r.plugins, "started"))
	if err := m.Status(t.Context()); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "2.conflist"), []byte(conflist("b", "p")),
		0o600); err != nil {
		t.Fatal(err)
	}
	if n := len(f.Reload().Networks); n != 2 {
		t.Errorf("%d networks", n)
	}
	if err := m.Status(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case err := <-done:
		t.Errorf("the ADD ended: %v", err)
	default:
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %s", describe(err))
	}
	r.wantNothing()
}

// Remove detaches attachments of libcni with its files, completed by the drop-ins of the directory,
// and attachments without any record.
func TestManagerTakesOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"p": {}, "q": {}})
	r.CacheDir = t.TempDir()
	f, _ := r.directory(map[string]string{"1.conflist": conflist("a", "p"),
		"2.conflist": conflist("b", "q")})
	m := r.manager(func(o *network.ManagerOptions) { o.Config = f })
	results := filepath.Join(r.CacheDir, "results")
	if err := os.MkdirAll(results, 0o700); err != nil {
		t.Fatal(err)
	}
	config := []byte(conflist("a", "p"))
	cached := fmt.Sprintf(`{"kind":"cniCacheV1","containerId":"c1","config":%q,"ifName":"eth0","networkName":"a","netns":"/run/netns/absent"}`, base64.StdEncoding.EncodeToString(config))
	if err := os.WriteFile(filepath.Join(results, "a-c1-eth0"), []byte(cached), 0o600); err != nil {
		t.Fatal(err)
	}
	now := sandbox("", nil)
	if err := m.Remove(t.Context(), "c1", &now); err != nil {
		t.Error(err)
	}
	r.wantCalls("DEL q, DEL p")
	if _, err := os.Stat(filepath.Join(results, "a-c1-eth0")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of libcni: %v", err)
	}
}
