package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// requests makes calls at the same time, and fails the test unless all succeed.
func (l *lab) requests(list []plugintest.Request) {
	l.t.Helper()
	var all sync.WaitGroup
	for _, q := range list {
		all.Go(func() {
			if _, err := l.Do(l.t.Context(), q); err != nil {
				l.t.Errorf("%s of %s: %v", q.Command, q.ContainerID, err)
			}
		})
	}
	all.Wait()
}

// tags returns the tags of the ports with a mark, without duplicates.
func (l *lab) tags(mark string) []string {
	l.t.Helper()
	out := l.sw.VSCtl("--bare", "--columns=tag", "find", "Port", mark)
	return slices.Compact(slices.Sorted(slices.Values(strings.Fields(out))))
}

// TestManyOfOneSegment attaches 32 containers to a new segment at once, as processes, while others
// leave: the segment has one tag and each tunnel once, and with the last container it ends.
func TestManyOfOneSegment(t *testing.T) {
	t.Parallel()
	l := start(t, under, segment)
	l.Exec = true
	const n = 32
	var add, del []plugintest.Request
	for i := range n {
		name := fmt.Sprintf("c%d", i)
		l.Container(name)
		add, del = append(add, l.Request(cni.Add, name)), append(del, l.Request(cni.Del, name))
	}
	before := l.state()
	for range 2 {
		l.requests(add)
		if tags := l.tags("external_ids:vxlanID=42"); !slices.Equal(tags, []string{"1"}) {
			t.Errorf("tags %v", tags)
		}
		if got := strings.Count(l.sw.Rows(), "role=tunnel"); got != 2 {
			t.Errorf("%d tunnels", got)
		}
		// The segment changes hands: as many leave as come, down to none.
		l.requests(slices.Concat(del[:n/2]))
		l.requests(slices.Concat(del[n/2:], add[:n/2]))
		if got := strings.Count(l.sw.Rows(), "role=tunnel"); got != 2 {
			t.Errorf("%d tunnels after half of the containers have left", got)
		}
		l.requests(del[:n/2])
		l.unchanged(before, "after DEL of all")
	}
}

// TestManySegments attaches containers of 16 segments at once. Each segment has a tag of its own.
func TestManySegments(t *testing.T) {
	t.Parallel()
	l := start(t, under, segment)
	l.sw.VSCtl("add-port", "ovs0", "used", "tag=3", "--", "set", "Interface", "used", "type=internal")
	l.sw.VSCtl("add-port", "ovs0", "many", "trunks=5,6", "--", "set", "Interface", "many", "type=internal")
	const n = 16
	var add, del []plugintest.Request
	for i := range 2 * n {
		name := fmt.Sprintf("c%d", i)
		for _, verb := range []cni.Command{cni.Add, cni.Del} {
			q := l.Request(verb, name)
			q.Conf["name"] = fmt.Sprintf("net%d", i%n)
			q.Conf["vxlanID"] = 100 + i%n
			if verb == cni.Add {
				add = append(add, q)
			} else {
				del = append(del, q)
			}
		}
	}
	before := l.state()
	l.requests(add)
	seen := map[string]bool{"3": true, "5": true, "6": true}
	for i := range n {
		tags := l.tags(fmt.Sprintf("external_ids:vxlanID=%d", 100+i))
		if len(tags) != 1 || seen[tags[0]] {
			t.Errorf("segment %d: tags %v, others have %v", 100+i, tags, seen)
			continue
		}
		seen[tags[0]] = true
	}
	l.requests(del)
	l.unchanged(before, "after DEL of all")
}

// TestSegmentConflicts refuses what would join or split segments by accident, with code 7.
func TestSegmentConflicts(t *testing.T) {
	t.Parallel()
	l := start(t, under, header+`,"vxlanID":42,"vlan":7,"vxlanRemotes":["192.0.2.2"]}`)
	l.Add("first")
	before := l.state()
	l.Container("c")
	before = l.state()
	for _, row := range []struct {
		name string
		conf map[string]any
		msg  string
	}{
		{"another tag for the segment", object{"vlan": 8}, "vlan: 8 cannot represent VXLAN segment 42 on bridge ovs0, because 7 does"},
		{"the tag for another segment", object{"vxlanID": 43}, "vlan: 7 represents VXLAN segment 42"},
		{"the tag without a segment", object{"vxlanID": 0, "vxlanRemotes": nil}, "vlan: 7 represents VXLAN segment 42"},
		{"the tunnel with another port", object{"vxlanPort": 8472}, "a tunnel to 192.0.2.2 with other options"},
	} {
		q := l.Request(cni.Add, "c")
		for key, value := range row.conf {
			q.Conf[key] = value
		}
		plugintest.Says(t, l.Refused(q, cni.CodeInvalidConfig), row.msg)
		l.unchanged(before, row.name)
	}
	q := l.Request(cni.Add, "c")
	delete(q.Conf, "vlan") // takes the tag that exists
	l.Must(q)
	if tags := l.tags("external_ids:vxlanID=42"); !slices.Equal(tags, []string{"7"}) {
		t.Errorf("tags %v", tags)
	}
}

type object = map[string]any

// TestOwnAddress makes no tunnel to an address of this node, so that all nodes can have one list.
func TestOwnAddress(t *testing.T) {
	t.Parallel()
	l := start(t, under, segment)
	l.Host.Batch("address add 192.0.2.2/32 dev lo")
	l.Add("c")
	remotes := regexp.MustCompile(`remote_ip=""?([0-9.]+)`).FindAllStringSubmatch(l.sw.Rows(), -1)
	if len(remotes) != 1 || remotes[0][1] != "192.0.2.3" {
		t.Errorf("tunnels to %v\n%s", remotes, l.sw.Rows())
	}
	l.Check("c")
}

// TestMoreRemotes adds the tunnels of a longer list to a segment that exists.
func TestMoreRemotes(t *testing.T) {
	t.Parallel()
	l := start(t, under, segment)
	before := l.sw.Rows()
	l.Add("a")
	l.Conf["vxlanRemotes"] = []any{"192.0.2.3", "192.0.2.4"}
	l.Add("b")
	l.Check("a")
	l.Check("b")
	if got := strings.Count(l.sw.Rows(), "role=tunnel"); got != 3 {
		t.Errorf("%d tunnels", got)
	}
	l.Del("a")
	l.Check("b")
	l.Del("b")
	if after := l.sw.Rows(); after != before {
		t.Errorf("rows left:\n%s", after)
	}
}

// TestLostSegment: another program has deleted the only port of a segment. DEL and GC remove the rest.
func TestLostSegment(t *testing.T) {
	t.Parallel()
	for _, verb := range []cni.Command{cni.Del, cni.GC} {
		t.Run(string(verb), func(t *testing.T) {
			t.Parallel()
			l := start(t, under, segment)
			before := l.sw.Rows()
			port := l.Add("c").Interfaces[0].Name
			l.sw.VSCtl("del-port", port)
			if verb == cni.GC {
				l.Must(l.Collect())
			} else {
				l.Del("c")
			}
			if after := l.sw.Rows(); after != before {
				t.Errorf("rows left:\n%s", after)
			}
		})
	}
}
