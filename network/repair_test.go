package network_test

import (
	"context"
	"encoding/json"
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
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
)

// repaired runs a repair and returns the calls, as "PLUGIN NETWORK/CONTAINER", sorted, and the
// skipped attachments.
func repaired(
	t *testing.T, c *network.Client, networks ...string,
) (calls, passed []string, err error) {
	t.Helper()
	left, err := c.Repair(t.Context(), networks, func(_ context.Context, list []invoke.Call) error {
		for _, call := range list {
			name, _, err := cni.DecodeHeader(call.Stdin)
			if err != nil {
				t.Error(err)
			}
			if call.Env.Command != cni.Check {
				t.Errorf("command %s", call.Env.Command)
			}
			calls = append(calls,
				fmt.Sprintf("%s %s/%s", filepath.Base(call.Path), name, call.Env.ContainerID))
		}
		return nil
	})
	slices.Sort(calls)
	for _, u := range left {
		passed = append(passed, fmt.Sprintf("%v: %s", u.Attachment, describe(u.Err)))
	}
	return calls, passed, err
}

func wantRepaired(t *testing.T, c *network.Client, want ...string) {
	t.Helper()
	calls, passed, err := repaired(t, c)
	if err != nil || len(passed) > 0 {
		t.Errorf("skipped %q, error %v", passed, err)
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// TestRepairCalls compares the calls with the calls of CHECK: the recorded configuration,
// capabilities, arguments and result.
func TestRepairCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {}})
	n := list(t, "1.1.0", "red", `{"type":"first","capabilities":{"mac":true},"color":"red"}`,
		"second")
	q := request("c1")
	q.Args = cni.Args{{Key: "K", Value: "v"}}
	q.Capabilities = map[string]json.RawMessage{"mac": json.RawMessage(`"02:00:00:00:00:01"`)}
	if _, err := r.Add(t.Context(), n, q); err != nil {
		t.Fatal(err)
	}
	r.entries()
	if err := r.Check(t.Context(), q.Attachment("red"), nil); err != nil {
		t.Fatal(err)
	}
	checks := r.entries()
	_, err := r.Repair(t.Context(), nil, func(_ context.Context, calls []invoke.Call) error {
		if len(calls) != len(checks) {
			return fmt.Errorf("%d calls", len(calls))
		}
		for i, call := range calls {
			if diff := cmp.Diff(checks[i].Env, call.Env); diff != "" ||
				filepath.Base(call.Path) != checks[i].Plugin {
				t.Errorf("call %d of %s (-CHECK +repair):\n%s", i, call.Path, diff)
			}
			if diff := cmp.Diff(string(checks[i].Stdin), string(call.Stdin)); diff != "" {
				t.Errorf("request %d (-CHECK +repair):\n%s", i, diff)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	r.wantCalls("") // no plugin is called
}

// TestRepairOfAll repairs attachments of every network, runtime and version, and of libcni.
func TestRepairOfAll(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {}})
	wantRepaired(t, r.Client)
	r.addAll(list(t, "1.1.0", "red", "first", "second"), "a", "b")
	r.addAll(list(t, "0.3.1", "old", "first"), "a")
	r.addAll(listWith(t, "1.1.0", "unchecked", `"disableCheck":true`, "first"), "a")
	other := *r.Client
	other.Runtime = "other"
	if _, err := other.Add(t.Context(), list(t, "1.1.0", "theirs", "second"),
		request("c")); err != nil {
		t.Fatal(err)
	}
	r.cache("cached-c1-eth0", cached(t, request("c1").Attachment("cached"),
		`{"cniVersion":"1.0.0","name":"cached","plugins":[{"type":"first"}]}`,
		`{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}`))
	wantRepaired(t, r.Client, "first cached/c1", "first old/a", "first red/a", "first red/b",
		"first unchecked/a",
		"second red/a", "second red/b", "second theirs/c")
	if calls, _, err := repaired(t, r.Client, "old", "theirs", "never"); err != nil ||
		strings.Join(calls, ",") != "first old/a,second theirs/c" {
		t.Errorf("of two networks: %q, %v", calls, err)
	}
}

// TestRepairSkips: Repair returns skipped attachments, and errors about those it cannot
// repair, and repairs all others.
func TestRepairSkips(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {}})
	red, blue := list(t, "1.1.0", "red", "first"), list(t, "1.1.0", "blue", "second", "first")
	r.addAll(red, "adding", "deleting", "damaged", "boot", "fine", "host")
	r.addAll(blue, "missing")
	at := func(name string) cni.Attachment { return request(name).Attachment("red") }
	editRecord(t, r.Client, at("adding"), `"state":"attached"`, `"state":"adding"`)
	editRecord(t, r.Client, at("host"), `"netns":"/run/netns/absent"`,
		`"netns":"/proc/self/ns/net"`)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	editRecord(t, r.Client, at("boot"), strings.TrimSpace(string(boot)),
		"00000000-0000-0000-0000-000000000000")
	r.script("first", script{cni.Del: fails(11, "not now")})
	if err := r.Del(t.Context(), at("deleting"), network.Fallback{}); err == nil {
		t.Fatal("DEL succeeded")
	}
	if err := os.WriteFile(recordPath(r.Client, at("damaged")), []byte("garbage"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(r.plugins, "second")); err != nil {
		t.Fatal(err)
	}
	calls, passed, err := repaired(t, r.Client)
	if diff := cmp.Diff([]string{"first blue/missing", "first red/fine"}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	slices.Sort(passed)
	for i, want := range []string{"red/adding/eth0: 3 ADD incomplete",
		"red/boot/eth0: 3 attached before", "red/deleting/eth0: 3 DEL was started",
		"red/host/eth0: 3 network namespace"} {
		if i >= len(passed) || !strings.HasPrefix(passed[i], want) {
			t.Errorf("skipped %q, want %q", passed, want)
			break
		}
	}
	if len(passed) != 4 {
		t.Errorf("skipped %q", passed)
	}
	for _, want := range []string{"record is damaged",
		`blue/missing/eth0: plugin "second" not found`} {
		if err == nil || !errors.Is(err, network.ErrUnreadable) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestRepairLocks: during a repair, no ADD, DEL or GC runs on its networks; other networks are not
// blocked.
func TestRepairLocks(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	red, blue := list(t, "1.1.0", "red", "first"), list(t, "1.1.0", "blue", "first")
	r.addAll(red, "a")
	short, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := r.Repair(t.Context(), nil, func(context.Context, []invoke.Call) error {
		if _, err := r.Add(t.Context(), blue, request("b")); err != nil {
			t.Error(err)
		}
		time.AfterFunc(50*time.Millisecond, cancel)
		for verb, err := range map[string]error{
			"ADD": second(r.Add(short, red, request("b"))),
			"DEL": r.Del(short, request("a").Attachment("red"), network.Fallback{}),
			"GC":  r.GC(short, red, keep("a")),
		} {
			if cni.CodeOf(err) != cni.CodeTryAgainLater {
				t.Errorf("%s during repair: %s", verb, describe(err))
			}
		}
		return errors.New("what do says")
	})
	if err == nil || err.Error() != "what do says" {
		t.Error(err)
	}
	if err := r.Del(t.Context(), request("a").Attachment("red"), network.Fallback{}); err != nil {
		t.Error("after repair:", err)
	}
}

func second[A any](_ A, err error) error { return err }

// TestRepairWaits: a repair waits for an ADD in progress and then repairs its attachment.
func TestRepairWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	r.addAll(list(t, "1.1.0", "red", "first"), "a")
	added := r.addSlowly("slow", `while [ ! -e $dir/go-on ]; do sleep 0.01; done
		echo '{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.4/24"}]}'`)
	c := *r.Client
	c.Timeout = testnet.Patience
	time.AfterFunc(50*time.Millisecond, func() { r.touch("go-on") })
	wantRepaired(t, &c, "first red/a", "slow slow/of-slow")
	if err := <-added; err != nil {
		t.Error(err)
	}
}

// TestRepairSkipsBusyNetwork: a repair gives up on a network that stays busy, and repairs the
// networks after it.
func TestRepairSkipsBusyNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	r.addAll(list(t, "1.1.0", "red", "first"), "a")
	added := r.addSlowly("hung", `while [ ! -e $dir/end ]; do sleep 0.01; done; exit 1`)
	c := *r.Client
	c.Timeout = time.Millisecond
	calls, passed, err := repaired(t, &c)
	if diff := cmp.Diff([]string{"first red/a"}, calls); diff != "" || len(passed) > 0 {
		t.Errorf("skipped %q, calls (-want +got):\n%s", passed, diff)
	}
	if cni.CodeOf(err) != cni.CodeTryAgainLater ||
		!strings.Contains(err.Error(), "network hung is busy") {
		t.Error(describe(err))
	}
	r.touch("end")
	<-added
}

// addSlowly starts an ADD to a network with one plugin, a shell script, and returns when the plugin
// runs. Network and plugin have the given name.
func (r *rig) addSlowly(name, script string) (ended <-chan error) {
	n := list(r.t, "1.1.0", name, `{"type":"`+name+`"}`)
	r.shell(name, "echo >$dir/"+name+"-begun; "+script)
	done := make(chan error, 1)
	go func() { done <- second(r.Add(r.t.Context(), n, request("of-"+name))) }()
	waitForPath(r.t, filepath.Join(r.plugins, name+"-begun"))
	return done
}

// touch creates a file for which a plugin waits.
func (r *rig) touch(name string) {
	if err := os.WriteFile(filepath.Join(r.plugins, name), nil, 0o600); err != nil {
		r.t.Error(err)
	}
}
