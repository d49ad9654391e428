package auditlog

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenon-cni/tenon/internal/cluster/local"
)

func TestBatch(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 2, 14, 30, 0, 0, time.UTC)
	events := []local.Record{
		{Time: at, Event: local.EventAdd, Pool: "pods", Addr: netip.MustParseAddr("10.64.0.2"),
			Network: "pods", Container: "web", IfName: "eth0", Namespace: "shop", Pod: "web-0"},
		{Time: at.Add(time.Hour), Event: local.EventDel, Pool: "pods",
			Addr: netip.MustParseAddr("10.64.0.2"), Network: "pods", Container: "web", IfName: "eth0"},
	}
	batch, err := Encode("n1", events)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(batch)
	if err != nil {
		t.Fatal(err)
	}
	want := []Record{{"n1", events[0]}, {"n1", events[1]}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
	if _, err := Decode([]byte("{}")); err == nil {
		t.Error("a batch without compression was decoded")
	}
}

func TestInterruptedLog(t *testing.T) {
	t.Parallel()
	log := `{"time":"2026-11-02T14:30:00Z","event":"add","pool":"pods","addr":"10.64.0.2"}` + "\n" +
		`{"time":"2026-11-02T14:3`
	got, err := DecodeLog("n1", []byte(log))
	if err != nil || len(got) != 1 || got[0].Node != "n1" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := DecodeLog("n1", []byte("?")); err == nil {
		t.Error("garbage was decoded")
	}
}

func FuzzDecode(f *testing.F) {
	batch, err := Encode("n1", []local.Record{{Event: local.EventAdd}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(batch)
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = Decode(b) })
}
