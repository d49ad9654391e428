package history

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/internal/ops/logs"
	"github.com/tenon-cni/tenon/network"
)

// noon is the time at which boot "b1" is an hour old.
var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// op is a record for tests. Words are a verb, a container and "key=value" pairs.
func op(boot string, minute int, words string) journal.Record {
	r := journal.Record{
		Boot: boot, Uptime: time.Hour + time.Duration(minute)*time.Minute,
		Time: noon.Add(time.Duration(minute) * time.Minute), Kind: journal.Operation,
		Network: "pods", IfName: "eth0", Runtime: "tenon",
	}
	fields := strings.Fields(words)
	r.Verb, r.Container = cni.Command(fields[0]), fields[1]
	for _, f := range fields[2:] {
		key, value, _ := strings.Cut(f, "=")
		switch key {
		case "ip":
			r.Addresses = append(r.Addresses, netip.MustParseAddr(value))
		case "failed":
			r.Code = cni.CodeInternal
		case "kind":
			r.Kind = journal.Kind(value)
		case "plugin":
			r.Kind, r.Runtime = journal.Plugin, "containerd"
			r.Plugins = []journal.Call{{Type: value}}
		case "keep":
			r.Container, r.IfName, r.Keep = "", "", strings.Split(value, ",")
		case "clock": // of the wall, which is wrong
			h, err := time.ParseDuration(value)
			if err != nil {
				panic(err)
			}
			r.Time = r.Time.Add(h)
		}
	}
	return r
}

func record(container, ip, boot string, minute int) network.Record {
	return network.Record{
		Attachment: cni.Attachment{Network: "pods", Container: container, IfName: "eth0"},
		BootID:     boot, Created: noon.Add(time.Duration(minute) * time.Minute), State: network.Attached,
		Result: &cni.Result{IPs: []cni.IP{{Address: netip.PrefixFrom(netip.MustParseAddr(ip), 24)}}},
	}
}

// describe writes an interval as text: "~" marks inferred ends.
func describe(list []Interval) string {
	var b strings.Builder
	for _, i := range list {
		point := func(t time.Time, c Certainty) string {
			mark := map[Certainty]string{Inferred: "~", Recorded: ""}[c]
			if t.IsZero() {
				return mark + "-"
			}
			return mark + t.UTC().Format("15:04")
		}
		fmt.Fprintf(&b, "%s %s %s %s %v\n", i.Container, point(i.From, i.FromCertainty),
			point(i.To, i.ToCertainty), i.Ended, i.Addresses)
	}
	return b.String()
}

func TestIntervals(t *testing.T) {
	t.Parallel()
	now := Now{Time: noon.Add(time.Hour), Boot: "b1", Uptime: 2 * time.Hour}
	for _, row := range []struct {
		name    string
		records []journal.Record
		live    []network.Record
		want    string
	}{
		{"nothing", nil, nil, ""},
		{"ADD and DEL", []journal.Record{op("b1", 1, "ADD web ip=10.0.0.2"), op("b1", 5, "DEL web")}, nil,
			"web 12:01 12:05 DEL [10.0.0.2]\n"},
		{"an address with three holders", []journal.Record{
			op("b1", 1, "ADD a ip=10.0.0.2"), op("b1", 2, "DEL a"), op("b1", 3, "ADD b ip=10.0.0.2"),
			op("b1", 4, "DEL b"), op("b1", 5, "ADD c ip=10.0.0.2")}, []network.Record{record("c", "10.0.0.2", "b1", 5)},
			"a 12:01 12:02 DEL [10.0.0.2]\nb 12:03 12:04 DEL [10.0.0.2]\nc 12:05 -  [10.0.0.2]\n"},
		{"failed operations change nothing", []journal.Record{
			op("b1", 1, "ADD web ip=10.0.0.2"), op("b1", 2, "DEL web failed"), op("b1", 3, "ADD x failed ip=10.0.0.3"),
			op("b1", 4, "CHECK web"), op("b1", 5, "DEL web")}, nil,
			"web 12:01 12:05 DEL [10.0.0.2]\n"},
		{"rollback and clean-up close", []journal.Record{
			op("b1", 1, "ADD a ip=10.0.0.2"), op("b1", 2, "DEL a kind=rollback"),
			op("b1", 3, "ADD b ip=10.0.0.3"), op("b1", 4, "DEL b kind=cleanup")}, nil,
			"a 12:01 12:02 rollback [10.0.0.2]\nb 12:03 12:04 cleanup [10.0.0.3]\n"},
		{"a rollback of a failed ADD", []journal.Record{
			op("b1", 1, "DEL a kind=rollback ip=10.0.0.2"), op("b1", 1, "ADD a failed")}, nil, ""},
		{"DEL comes again", []journal.Record{op("b1", 1, "ADD web ip=10.0.0.2"), op("b1", 2, "DEL web"),
			op("b1", 9, "DEL web ip=10.0.0.2")}, nil,
			"web 12:01 12:02 DEL [10.0.0.2]\n"},
		{"attached before the journal", []journal.Record{op("b1", 5, "DEL web ip=10.0.0.2")}, nil,
			"web ~- 12:05 DEL [10.0.0.2]\n"},
		{"a record from before the journal", []journal.Record{op("b1", 5, "ADD x ip=10.0.0.3")},
			[]network.Record{record("web", "10.0.0.2", "b1", 0), record("x", "10.0.0.3", "b1", 5)},
			"web ~12:00 -  [10.0.0.2]\nx 12:05 -  [10.0.0.3]\n"},
		{"a record of an earlier boot", nil, []network.Record{record("web", "10.0.0.2", "b0", -120)},
			"web ~10:00 ~11:00 reboot [10.0.0.2]\n"},
		{"the next ADD closes", []journal.Record{op("b1", 1, "ADD web ip=10.0.0.2"), op("b1", 5, "ADD web ip=10.0.0.4")},
			[]network.Record{record("web", "10.0.0.4", "b1", 5)},
			"web 12:01 ~12:05 ADD [10.0.0.2]\nweb 12:05 -  [10.0.0.4]\n"},
		{"another container gets the address", []journal.Record{op("b1", 1, "ADD a ip=10.0.0.2"), op("b1", 5, "ADD b ip=10.0.0.2")},
			[]network.Record{record("b", "10.0.0.2", "b1", 5)},
			"a 12:01 ~12:05 ADD [10.0.0.2]\nb 12:05 -  [10.0.0.2]\n"},
		{"no record and no DEL", []journal.Record{op("b1", 1, "ADD a ip=10.0.0.2")}, nil,
			"a 12:01 ~- unknown [10.0.0.2]\n"},
		{"a reboot", []journal.Record{op("b0", -180, "ADD a ip=10.0.0.2"), op("b1", 5, "ADD b ip=10.0.0.2")},
			[]network.Record{record("a", "10.0.0.2", "b0", -180), record("b", "10.0.0.2", "b1", 5)},
			"a 09:00 ~11:00 reboot [10.0.0.2]\nb 12:05 -  [10.0.0.2]\n"},
		{"a reboot without later records", []journal.Record{op("b0", -180, "ADD a ip=10.0.0.2")}, nil,
			"a 09:00 ~11:00 reboot [10.0.0.2]\n"},
		{"the clock was wrong and has been set", []journal.Record{
			op("b1", 1, "ADD a ip=10.0.0.2 clock=-9h"), op("b1", 2, "DEL a")}, nil,
			"a 12:01 12:02 DEL [10.0.0.2]\n"},
		{"the clock of an earlier boot", []journal.Record{
			op("b0", -180, "ADD a ip=10.0.0.2 clock=+900h"), op("b0", -170, "DEL a")}, nil,
			"a 09:00 09:10 DEL [10.0.0.2]\n"},
		{"records change places", []journal.Record{op("b1", 5, "DEL a"), op("b1", 1, "ADD a ip=10.0.0.2")}, nil,
			"a 12:01 12:05 DEL [10.0.0.2]\n"},
		{"plugins of a runtime", []journal.Record{
			op("b1", 1, "ADD a plugin=bridge ip=10.0.0.2"), op("b1", 2, "ADD a plugin=portmap ip=10.0.0.2"),
			op("b1", 5, "DEL a plugin=portmap"), op("b1", 6, "DEL a plugin=bridge"),
			op("b1", 9, "DEL a plugin=portmap"), op("b1", 9, "DEL a plugin=bridge ip=10.0.0.2")}, nil,
			"a 12:01 12:06 DEL [10.0.0.2]\n"},
		{"plugins without records stay open", []journal.Record{op("b1", 1, "ADD a plugin=bridge ip=10.0.0.2")}, nil,
			"a 12:01 -  [10.0.0.2]\n"},
		{"a second ADD of a plugin", []journal.Record{
			op("b1", 1, "ADD a plugin=bridge ip=10.0.0.2"), op("b1", 5, "ADD a plugin=bridge ip=10.0.0.3")}, nil,
			"a 12:01 ~12:05 ADD [10.0.0.2]\na 12:05 -  [10.0.0.3]\n"},
		{"GC of a plugin", []journal.Record{
			op("b1", 1, "ADD a plugin=bridge ip=10.0.0.2"), op("b1", 1, "ADD b plugin=bridge ip=10.0.0.3"),
			op("b1", 5, "GC - plugin=bridge keep=b/eth0,c/eth0"), op("b1", 6, "GC - plugin=portmap keep=c/eth0")}, nil,
			"a 12:01 12:05 cleanup [10.0.0.2]\nb 12:01 -  [10.0.0.3]\n"},
	} {
		got := describe(Intervals(row.records, row.live, true, now))
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", row.name, diff)
		}
	}
}

// TestIncompleteRecords: without all records of attachments, an attachment without DEL stays open.
func TestIncompleteRecords(t *testing.T) {
	t.Parallel()
	now := Now{Time: noon.Add(time.Hour), Boot: "b1", Uptime: 2 * time.Hour}
	got := describe(Intervals([]journal.Record{op("b1", 1, "ADD a ip=10.0.0.2")}, nil, false, now))
	if want := "a 12:01 -  [10.0.0.2]\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAsk(t *testing.T) {
	t.Parallel()
	records := []journal.Record{
		op("b1", 1, "ADD api-3 ip=10.0.0.2 ip=fd00::2"), op("b1", 10, "DEL api-3"),
		op("b1", 20, "ADD job-41 ip=10.0.0.2"), op("b1", 30, "DEL job-41"),
		op("b1", 40, "ADD api-9 ip=10.0.0.2"), op("b1", 45, "ADD lost ip=10.0.0.9"),
	}
	records[2].Ports = []journal.Port{{HostPort: 8080, Protocol: "TCP"}}
	records[2].Interfaces = []journal.Interface{{Name: "veth1", MAC: "02:00:00:00:00:09"},
		{Name: "net1", MAC: "02:00:00:00:00:0a", Container: true}}
	now := Now{Time: noon.Add(time.Hour), Boot: "b1", Uptime: 2 * time.Hour}
	all := Intervals(records, []network.Record{record("api-9", "10.0.0.2", "b1", 40)}, true, now)
	minute := func(m int) time.Time { return noon.Add(time.Duration(m) * time.Minute) }
	for _, row := range []struct {
		query Query
		want  string // containers, "<" before, ">" after
	}{
		{Query{Subject: "10.0.0.2"}, "api-3 job-41 api-9"},
		{Query{Subject: "::ffff:10.0.0.2", Since: minute(25)}, "job-41 api-9"},
		{Query{Subject: "10.0.0.2", At: minute(25)}, "job-41 <api-3 >api-9"},
		{Query{Subject: "10.0.0.2", At: minute(35)}, "<job-41 >api-9"},
		{Query{Subject: "10.0.0.2", At: minute(30)}, "<job-41 >api-9"}, // the end is not part
		{Query{Subject: "10.0.0.2", At: minute(20)}, "job-41 <api-3 >api-9"},
		{Query{Subject: "10.0.0.2", At: minute(0)}, ">api-3"},
		{Query{Subject: "10.0.0.2", At: minute(59)}, "api-9 <job-41"},
		{Query{Subject: "fd00:0::2"}, "api-3"},
		{Query{Subject: "8080"}, "job-41"},
		{Query{Subject: "8080/tcp"}, "job-41"},
		{Query{Subject: "8080/udp"}, ""},
		{Query{Subject: "02-00-00-00-00-0A"}, "job-41"},
		{Query{Subject: "02:00:00:00:00:09"}, ""}, // a MAC address of the host
		{Query{Subject: "veth1"}, "job-41"},
		{Query{Subject: "net1"}, "job-41"},
		{Query{Subject: "eth0"}, "api-3 job-41 api-9 lost"},
		{Query{Subject: "job"}, "job-41"},
		{Query{Subject: "pods/api-9/eth0"}, "api-9"},
		{Query{Subject: "api"}, "ambiguous api-3 api-9"},
		{Query{Subject: "nothing"}, ""},
		{Query{}, "api-3 job-41 api-9 lost"},
		{Query{Since: minute(25)}, "job-41 api-9 lost"},
		{Query{Subject: "10.0.0.9", At: minute(50), Since: minute(48)}, "lost"}, // its end is unknown
	} {
		if got := ask(all, row.query, now); got != row.want {
			t.Errorf("%+v: got %q, want %q", row.query, got, row.want)
		}
	}
}

func ask(all []Interval, q Query, now Now) string {
	a, err := Ask(all, q, time.Time{}, now)
	var ambiguous *logs.AmbiguousError
	if errors.As(err, &ambiguous) {
		return "ambiguous " + strings.Join(ambiguous.Candidates, " ")
	}
	var words []string
	for _, i := range a.Intervals {
		words = append(words, i.Container)
	}
	if a.Before != nil {
		words = append(words, "<"+a.Before.Container)
	}
	if a.After != nil {
		words = append(words, ">"+a.After.Container)
	}
	return strings.Join(words, " ")
}
