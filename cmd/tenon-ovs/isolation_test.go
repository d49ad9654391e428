package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// with returns the request of ADD for a container, with further options.
func (l *lab) with(container string, conf object) plugintest.Request {
	l.t.Helper()
	q := l.Request(cni.Add, container)
	maps.Copy(q.Conf, conf)
	return q
}

// refusedAs fails the test unless an ADD is refused with code 7, these words in its message, and a
// hint that mentions another bridge, and leaves the state as it was.
func (l *lab) refusedAs(q plugintest.Request, words ...string) {
	l.t.Helper()
	before := l.state()
	err := l.Refused(q, cni.CodeInvalidConfig)
	if err == nil {
		return
	}
	for _, w := range words {
		plugintest.Says(l.t, err, w)
	}
	if hint := cni.AsError(err).Details; !strings.Contains(hint, "another bridge") {
		l.t.Errorf("hint %q of %v", hint, err)
	}
	l.unchanged(before, fmt.Sprintf("after the refusal of %v", q.Conf))
}

// TestPortReachesSegment: on a bridge with a segment, ADD refuses each port that could send frames
// with the tag of the segment.
func TestPortReachesSegment(t *testing.T) {
	t.Parallel()
	l := start(t, under, header+`}`)
	l.sw.Bridge("ovs1")
	before := l.sw.Rows()
	l.Must(l.with("member", object{"vxlanID": 42, "vlan": 7}))
	l.Must(l.with("other", object{"vxlanID": 43, "vlan": 9}))
	l.Container("c")
	inside := []object{{"id": 5}, {"minID": 6, "maxID": 8}}
	for _, row := range []struct {
		conf object
		text string
	}{
		{object{}, "the port would be a trunk of all VLANs, but"},
		{object{"trunk": inside}, "trunk:"},
		{object{"trunk": inside, "vlan": 5}, "trunk:"},
		{object{"vlan": 7}, "vlan:"},
	} {
		l.refusedAs(l.with("c", row.conf), row.text+" 7 represents VXLAN segment 42 on bridge ovs0")
	}
	for i, conf := range []object{
		{"vlan": 8},
		{"trunk": []object{{"minID": 1, "maxID": 6}, {"id": 8}, {"minID": 10, "maxID": 4094}}},
		{"bridge": "ovs1"},
		{"vxlanID": 42},
	} {
		l.Must(l.with(fmt.Sprintf("apart%d", i), conf))
	}
	for _, name := range []string{"member", "other", "apart0", "apart1", "apart2", "apart3"} {
		l.Del(name)
	}
	if after := l.sw.Rows(); after != before {
		t.Errorf("rows left:\n%s", after)
	}
	l.Must(l.with("c", nil)) // without a segment
}

// TestSegmentReachedByPort: ADD refuses a new segment if the port of another container could send
// frames with its tag.
func TestSegmentReachedByPort(t *testing.T) {
	t.Parallel()
	l := start(t, under, header+`}`)
	for _, row := range []struct{ port, segment object }{
		{object{}, object{"vxlanID": 42}},
		{object{}, object{"vxlanID": 42, "vlan": 7}},
		{object{"trunk": []object{{"id": 5}, {"id": 7}}}, object{"vxlanID": 42, "vlan": 7}},
		{object{"vlan": 7}, object{"vxlanID": 42, "vlan": 7}},
	} {
		l.Must(l.with("web", row.port))
		l.Container("c")
		tag := "VLAN 1"
		if row.segment["vlan"] != nil {
			tag = "VLAN 7"
		}
		l.refusedAs(l.with("c", row.segment), "container web (network net, eth0)",
			"VXLAN segment 42", tag, "bridge ovs0")
		l.Del("web")
	}
	// The plugin chooses a tag that no trunk includes.
	l.Must(l.with("web", object{"trunk": []object{{"minID": 1, "maxID": 10}}}))
	l.Must(l.with("c", object{"vxlanID": 42}))
	if tags := l.tags("external_ids:vxlanID=42"); len(tags) != 1 || tags[0] != "11" {
		t.Errorf("tags %v", tags)
	}
}

// TestUplink: ADD accepts ports of other programs that reach a segment, and warns of them.
func TestUplink(t *testing.T) {
	t.Parallel()
	l := start(t, under, header+`}`)
	for port, vlan := range map[string]string{
		"uplink": "external_ids:role=uplink", "some": "trunks=7,8", "access": "tag=7",
		"native":    "vlan_mode=native-tagged trunks=3 tag=7",
		"elsewhere": "tag=8", "zero": "tag=0", "few": "trunks=5,6",
	} {
		l.sw.VSCtl(append(append([]string{"add-port", "ovs0", port}, strings.Fields(vlan)...), "--",
			"set", "Interface", port, "type=internal")...)
	}
	add := func(name string, conf object) string {
		t.Helper()
		q := l.with(name, conf)
		stdin, err := json.Marshal(q.Conf)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		caller := plugin.Linked{
			Log: slog.New(slog.NewTextHandler(&log, nil)), Plugins: definitions(),
		}
		err = l.Host.Run(func() error {
			_, err := caller.Call(t.Context(),
				invoke.Call{Path: invoke.LinkedPath("ovs"), Env: q.Env, Stdin: stdin})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return log.String()
	}
	for _, name := range []string{"first", "second"} {
		log := add(name, object{"vxlanID": 42, "vlan": 7})
		for _, want := range []string{"level=WARN", `ports="[access native some uplink]"`, "vlan=7"} {
			if strings.Count(log, want) != 1 {
				t.Errorf("%s: log without %q:\n%s", name, want, log)
			}
		}
	}
	if log := add("plain", object{"vlan": 5}); log != "" {
		t.Errorf("log:\n%s", log)
	}
}

// rivals are the configurations of two containers of which a bridge admits one.
var rivals = map[string]object{
	"trunk": {}, "member": {"vxlanID": 42, "vxlanRemotes": []string{"192.0.2.2"}},
}

// oneWins fails the test unless one of two errors is nil and the other one has code 7.
func oneWins(t *testing.T, when string, a, b error) {
	t.Helper()
	if a != nil {
		a, b = b, a
	}
	if a != nil || cni.CodeOf(b) != cni.CodeInvalidConfig {
		t.Errorf("%s: errors %v and %v; want one, with code 7", when, a, b)
	}
}

// TestRivalBetweenRequests makes one ADD between each two requests of the other one: either the
// trunk of all VLANs or the segment fails.
func TestRivalBetweenRequests(t *testing.T) {
	t.Parallel()
	for outer, inner := range map[string]string{"trunk": "member", "member": "trunk"} {
		t.Run(outer+" first", func(t *testing.T) {
			t.Parallel()
			l := start(t, under, header+`}`)
			path, _ := strings.CutPrefix(l.sw.Socket(), "unix:")
			proxy := startProxy(t, path)
			l.Container(outer)
			l.Container(inner)
			before := l.state()
			slow, rival := l.with(outer, rivals[outer]), l.with(inner, rivals[inner])
			slow.Conf["socket_file"] = proxy.socket()
			for n := 0; ; n++ {
				var lost error
				proxy.meanwhile = func() { _, lost = l.Do(t.Context(), rival) }
				proxy.disturb(hold, n)
				_, err := l.Do(t.Context(), slow)
				if !proxy.calm() {
					if n < 4 {
						t.Errorf("%d requests", n)
					}
					return
				}
				oneWins(t, fmt.Sprintf("before request %d", n), err, lost)
				l.Del(outer)
				l.Del(inner)
				l.unchanged(before, "after DEL of both")
			}
		})
	}
}

// TestRivalProcesses attaches a container as trunk of all VLANs and the first one of a segment at
// the same time, in two processes. One of them fails.
func TestRivalProcesses(t *testing.T) {
	t.Parallel()
	l := start(t, under, header+`}`)
	l.Exec = true
	l.Container("trunk")
	l.Container("member")
	before := l.state()
	for round := range 10 {
		errs := map[string]*error{}
		var both sync.WaitGroup
		for name, conf := range rivals {
			q, err := l.with(name, conf), new(error)
			errs[name] = err
			both.Go(func() { _, *err = l.Do(t.Context(), q) })
		}
		both.Wait()
		oneWins(t, fmt.Sprintf("round %d", round), *errs["trunk"], *errs["member"])
		l.Del("trunk")
		l.Del("member")
		l.unchanged(before, "after DEL of both")
	}
}
