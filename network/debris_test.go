package network_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// beforeBoot changes a file of the state directory so that an earlier boot seems to have written
// it.
func beforeBoot(t *testing.T, path string) {
	t.Helper()
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err != nil {
		t.Fatal(err)
	} else if names := make([]byte, len(b)); true {
		n, err := unix.Getxattr(path, "user.tenon.boot", names)
		if err != nil || string(names[:n]) != string(bytes.TrimSpace(b)) {
			t.Fatalf("%s names boot %q, %v", path, names, err)
		}
	}
	if err := unix.Setxattr(path, "user.tenon.boot", []byte("another"), 0); err != nil {
		t.Fatal(err)
	}
}

// CACHE-11, R-02: damaged records of an earlier boot are removed with a warning and without an
// error. They prevent neither Recover nor GC from handling the other records, and GC still calls
// the plugins.
func TestDamagedBeforeBoot(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*rig, *config.Network) error{
		"Recover": func(r *rig, _ *config.Network) error { return r.Recover(r.t.Context(), nil) },
		"GC": func(r *rig, n *config.Network) error {
			return r.GC(r.t.Context(), n, network.Keep{Recorded: true})
		},
		"GC of a list": func(r *rig, n *config.Network) error {
			return r.GC(r.t.Context(), n, keep("alive"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]script{"first": {}})
			n := list(t, "1.1.0", "red", "first")
			r.addAll(n, "alive", "empty", "cut", "deleting", "whole")
			at := func(id string) cni.Attachment { return request(id).Attachment("red") }
			for id, left := range map[string]int64{"empty": 0, "cut": 200, "deleting": 0} {
				if err := os.Truncate(recordPath(r.Client, at(id)), left); err != nil {
					t.Fatal(err)
				}
				beforeBoot(t, recordPath(r.Client, at(id)))
			}
			path := recordPath(r.Client, at("deleting"))
			if err := os.Rename(path, strings.TrimSuffix(path, ".json")+".deleting"); err != nil {
				t.Fatal(err)
			}
			editRecord(t, r.Client, at("whole"), `"bootID":"`, `"bootID":"x`)
			if err := run(r, n); err != nil {
				t.Error(describe(err))
			}
			log := r.entries()
			if want := "DEL first"; !strings.HasPrefix(callsOf(log), want) ||
				log[0].Env.ContainerID != "whole" {
				t.Errorf("calls %s", callsOf(log))
			}
			if name != "Recover" {
				var request struct {
					Valid json.RawMessage `json:"cni.dev/valid-attachments"`
				}
				if err := json.Unmarshal(log[len(log)-1].Stdin, &request); err != nil ||
					string(request.Valid) != `[{"containerID":"alive","ifname":"eth0"}]` {
					t.Errorf("%s with %s", callsOf(log), request.Valid)
				}
			}
			if got := strings.Count(r.log.String(),
				"removing a damaged record of an earlier boot"); got != 3 {
				t.Errorf("%d warnings:\n%s", got, r.log)
			}
			r.wantRecorded("red/alive/eth0 attached")
		})
	}
}

// A damaged record of this boot stays, and makes neither Recover nor GC fail.
func TestDamagedInThisBoot(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n := list(t, "1.1.0", "red", "first")
	r.addAll(n, "damaged")
	path := recordPath(r.Client, request("damaged").Attachment("red"))
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Recover(t.Context(), nil); err != nil {
			t.Error(describe(err))
		}
		if err := r.GC(t.Context(), n, network.Keep{Recorded: true}); err != nil {
			t.Error(describe(err))
		}
	}
	r.wantCalls("")
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// Recover removes a damaged file about unfinished operations if an earlier boot wrote it.
func TestDamagedDueBeforeBoot(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if err := r.PutDue("c1", network.Deleting, nil); err != nil {
		t.Fatal(err)
	}
	path := r.DuePath("c1")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.Recover(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("of this boot: %v", err)
	}
	beforeBoot(t, path)
	if err := r.Recover(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(path); left != nil {
		t.Errorf("left %v", left)
	}
}
