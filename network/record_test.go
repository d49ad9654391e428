package network_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// equalAddr lets cmp compare addresses.
var equalAddr = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// A public record has every field of a record.
func TestPublicRecord(t *testing.T) {
	t.Parallel()
	now := time.Now()
	all := reflect.ValueOf(network.PublicRecord(&records.Record{
		Attachment: cni.Attachment{Network: "red"}, State: records.Attached, List: &cni.List{},
		Result:     &cni.Result{},
		Parameters: records.Parameters{Netns: "/run/netns/x"}, Created: now, Done: now, BootID: "b",
		Runtime: "crio", Source: "/f", StateDir: "/s",
	}))
	for i := range all.NumField() {
		if all.Field(i).IsZero() {
			t.Errorf("%s is missing", all.Type().Field(i).Name)
		}
	}
	for state, want := range map[records.State]network.State{
		records.Adding: network.Adding, records.Attached: network.Attached,
		records.Deleting: network.Deleting,
	} {
		if got := network.PublicRecord(&records.Record{State: state}).State; got != want {
			t.Errorf("state %q, want %q", got, want)
		}
	}
}

// CFG-21: a single plugin is recorded as an equivalent list.
func TestRecordSinglePlugin(t *testing.T) {
	t.Parallel()
	recorder := &invoke.Recorder{Caller: invoke.Fake{"x": {}}}
	c := &network.Client{Isolated: true, Caller: recorder, StateDir: t.TempDir()}
	n, err := config.LoadBytes([]byte(`{"cniVersion":"0.4.0","name":"red","type":"x","disableCheck":true,"n":1.10}`))
	if err != nil {
		t.Fatal(err)
	}
	q := request("c1")
	if _, err := c.Add(t.Context(), n, q); err != nil {
		t.Fatal(err)
	}
	if err := c.Check(t.Context(), q.Attachment("red"), nil); err != nil {
		t.Fatal(err)
	}
	log := recorder.Exchanges()
	if len(log) != 2 {
		t.Fatalf("%d calls", len(log))
	}
	want := `{"cniVersion":"0.4.0","disableCheck":true,"n":1.10,"name":"red","prevResult":{"cniVersion":"0.4.0","dns":{}},"type":"x"}`
	if got := string(log[1].Call.Stdin); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// R-03, CACHE-08: attachments with similar names have separate records.
func TestRecordsOfSimilarNames(t *testing.T) {
	t.Parallel()
	c := &network.Client{Isolated: true, Caller: invoke.Fake{"x": {}}, StateDir: t.TempDir()}
	var want []string
	for _, key := range [][2]string{{"a-b", "c"}, {"a", "b-c"}} {
		n, q := list(t, "1.1.0", key[0], "x"), request(key[1])
		if _, err := c.Add(t.Context(), n, q); err != nil {
			t.Fatal(err)
		}
		want = append(want, q.Attachment(n.Name).String())
	}
	records, err := c.List()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range records { // oldest first
		got = append(got, r.Attachment.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// CACHE-02: directories and files are private, and no other files remain.
func TestRecordFiles(t *testing.T) {
	t.Parallel()
	c := &network.Client{Isolated: true, Caller: invoke.Fake{"x": {}},
		StateDir: filepath.Join(t.TempDir(), "a/b")}
	q := request("c1")
	if _, err := c.Add(t.Context(), list(t, "1.1.0", "red", "x"), q); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := filepath.WalkDir(c.StateDir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		rel, _ := filepath.Rel(c.StateDir, path)
		got = append(got, info.Mode().String()+" "+rel)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"drwx------ .", "drwx------ locks", "drwx------ records",
		"-rw------- records/" + string(q.Attachment("red").Owner()) + ".json"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// CACHE-09, R-02: List returns readable records, and errors about the others.
func TestListDamaged(t *testing.T) {
	t.Parallel()
	c := &network.Client{Isolated: true, Caller: invoke.Fake{"x": {}}, StateDir: t.TempDir()}
	n := list(t, "1.1.0", "red", "x")
	var paths []string
	for _, id := range []string{"c1", "c2", "c3"} {
		q := request(id)
		if _, err := c.Add(t.Context(), n, q); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, recordPath(c, q.Attachment("red")))
	}
	if err := os.Truncate(paths[0], 10); err != nil {
		t.Fatal(err)
	}
	// The file gets the name of another record.
	if err := os.Rename(paths[1], paths[0][:len(paths[0])-len("0.json")]+"f.json"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(paths[0]), ".draft.json"), nil,
		0o600); err != nil {
		t.Fatal(err)
	}
	records, err := c.List()
	if len(records) != 1 || records[0].Attachment.Container != "c3" {
		t.Errorf("records %v", records)
	}
	if err == nil || strings.Count(err.Error(), "\n") != 1 ||
		!strings.Contains(err.Error(), paths[0]) {
		t.Errorf("got %s", describe(err))
	}
	if _, err := c.Record(request("c1").Attachment("red")); cni.CodeOf(err) != cni.CodeDecodingFailure {
		t.Errorf("damaged record: %s", describe(err))
	}
	if _, err := c.Record(request("c2").Attachment("red")); !errors.Is(err, network.ErrNoRecord) {
		t.Errorf("missing record: %s", describe(err))
	}
}

// R-08, RT-DEL-05, SEC-04: however a record is damaged, DEL with a given network cleans up, and
// uses nothing from the record.
func TestDelWithDamagedRecord(t *testing.T) {
	t.Parallel()
	recorder := &invoke.Recorder{Caller: invoke.Fake{"x": {}}}
	c := &network.Client{Isolated: true, Caller: recorder, StateDir: t.TempDir(), Log: quiet}
	n := list(t, "1.1.0", "red", "x")
	q := request("c1")
	a := q.Attachment("red")
	if _, err := c.Add(t.Context(), n, q); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(recordPath(c, a))
	if err != nil {
		t.Fatal(err)
	}
	body := unseal(t, whole)
	cleansUp := func(b []byte, what string) {
		if err := os.WriteFile(recordPath(c, a), b, 0o600); err != nil {
			t.Fatal(err)
		}
		before := len(recorder.Exchanges())
		if err := c.Del(t.Context(), a,
			network.Fallback{Network: n, Parameters: q.Parameters}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		calls := recorder.Exchanges()[before:]
		if len(calls) != 1 || calls[0].Call.Env.ContainerID != "c1" ||
			strings.Contains(string(calls[0].Call.Stdin), "prevResult") {
			t.Fatalf("%s: calls %v", what, calls)
		}
		if _, err := os.Stat(recordPath(c, a)); err == nil {
			t.Fatalf("%s: the record was not removed", what)
		}
	}
	cleansUp(seal("tenonRecordV1", []byte(strings.Replace(string(body), `"c1"`, `"c2"`, 1))),
		"another's")
	step := 1
	if testing.Short() {
		step = 7
	}
	for i := 0; i < len(whole); i += step {
		cleansUp(whole[:i], fmt.Sprintf("truncated to %d bytes", i))
		flipped := slices.Clone(whole)
		flipped[i] ^= 1
		cleansUp(flipped, fmt.Sprintf("byte %d flipped", i))
	}
}
