package logs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/internal/ops/logs"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// operations are in the order of a journal, one each minute from noon on.
func operations() []journal.Record {
	list := []journal.Record{
		{Verb: cni.Add, Network: "pods", Container: "web-1", IfName: "eth0"},
		{Verb: cni.Add, Network: "pods", Container: "web-2", IfName: "eth0", Code: 11, Error: "full"},
		{Verb: cni.Add, Network: "lan", Container: "web-1", IfName: "net1"},
		{Verb: cni.GC, Network: "pods"},
		{Verb: cni.Del, Network: "pods", Container: "web-1", IfName: "eth0"},
	}
	for i := range list {
		list[i].Time = noon.Add(time.Duration(i) * time.Minute)
		list[i].Duration = 1500 * time.Microsecond
		list[i].Plugins = []journal.Call{{Type: "bridge", Duration: time.Millisecond}}
	}
	return list
}

func TestFilter(t *testing.T) {
	t.Parallel()
	records := operations()
	for _, row := range []struct {
		name   string
		filter logs.Filter
		last   int
		want   string
	}{
		{"all", logs.Filter{}, 0, "ADD pods/web-1/eth0, ADD pods/web-2/eth0, ADD lan/web-1/net1, GC pods, DEL pods/web-1/eth0"},
		{"the last ones", logs.Filter{}, 2, "GC pods, DEL pods/web-1/eth0"},
		{"a network", logs.Filter{Name: "pods"}, 2, "GC pods, DEL pods/web-1/eth0"},
		{"a container", logs.Filter{Name: "web-1"}, 0, "ADD pods/web-1/eth0, ADD lan/web-1/net1, DEL pods/web-1/eth0"},
		{"an attachment", logs.Filter{Name: "lan/web-1/net1"}, 0, "ADD lan/web-1/net1"},
		{"an attachment by its ID", logs.Filter{Name: string(records[2].Attachment().Owner())}, 0, "ADD lan/web-1/net1"},
		{"an unknown name", logs.Filter{Name: "nothing"}, 0, ""},
		{"failures", logs.Filter{Failed: true}, 0, "ADD pods/web-2/eth0"},
		{"since a time", logs.Filter{Since: noon.Add(3 * time.Minute)}, 0, "GC pods, DEL pods/web-1/eth0"},
		{"nothing", logs.Filter{Name: "web-2", Since: noon.Add(time.Hour)}, 0, ""},
	} {
		filter, err := row.filter.Resolve(records)
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		var got []string
		for _, e := range filter.Last(records, row.last) {
			got = append(got, string(e.Verb)+" "+e.Subject())
		}
		if diff := cmp.Diff(row.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s (-want +got)\n%s", row.name, diff)
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	records := append(operations(), journal.Record{Verb: cni.Add, Network: "pods", Container: "db"})
	for name, want := range map[string]string{
		"d": "db", "pods": "pods", "nothing": "nothing",
		"web": "web is ambiguous: web-1, web-2",
	} {
		f, err := logs.Filter{Name: name}.Resolve(records)
		got := f.Name
		if ambiguous := (*logs.AmbiguousError)(nil); errors.As(err, &ambiguous) {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got := fmt.Sprint(logs.Names(records)); got != "[lan pods db web-1 web-2]" {
		t.Errorf("names %s", got)
	}
}

func TestEntryOf(t *testing.T) {
	t.Parallel()
	e := logs.EntryOf(operations()[1])
	want := logs.Entry{Time: noon.Add(time.Minute), Verb: cni.Add, Network: "pods", Container: "web-2",
		IfName: "eth0", Outcome: logs.Failed, Code: 11, Error: "full", Milliseconds: 1.5,
		Plugins: []logs.Call{{Type: "bridge", Milliseconds: 1}}}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
