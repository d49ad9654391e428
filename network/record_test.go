package network_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// equalAddr lets cmp look at addresses.
var equalAddr = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// The format on disk. It must never change: records outlive the program that wrote them.
const recordV1 = `{"network":"red","container":"c1","ifname":"eth0","runtime":"crio","state":"attached",` +
	`"netns":"/run/netns/x","hostNetns":true,"cniVersion":"1.0.0","config":{"cniVersion":"1.0.0","extra":[1.10],` +
	`"loadOnlyInlinedPlugins":true,"name":"red","plugins":[{"big":9007199254740993,"type":"first"}]},` +
	`"args":"B=1;A=2","capabilityArgs":{"mac":"02:00:00:00:00:01"},` +
	`"result":{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]},` +
	`"created":"2026-01-02T03:04:05.000000006Z","done":"2026-01-02T03:04:06Z","bootID":"b"}`

// sealedV1 is what is around it.
const sealedV1 = `{"kind":"tenonRecordV1","sha256":"SUM","record":` + recordV1 + "}\n"

// CACHE-03, CACHE-04: everything that was given is kept, in the effective configuration and exactly.
func TestRecordFormat(t *testing.T) {
	t.Parallel()
	sealed := strings.Replace(sealedV1, "SUM", fmt.Sprintf("%x", sha256.Sum256([]byte(recordV1))), 1)
	r, err := network.DecodeRecord([]byte(sealed))
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sealed, string(b)); diff != "" {
		t.Error(diff)
	}
	want := network.Record{
		Attachment: cni.Attachment{Network: "red", Container: "c1", IfName: "eth0"},
		State:      network.Attached,
		List:       r.List,
		Parameters: network.Parameters{
			Netns: "/run/netns/x", HostNetns: true, Args: cni.Args{{Key: "B", Value: "1"}, {Key: "A", Value: "2"}},
			Capabilities: map[string]json.RawMessage{"mac": json.RawMessage(`"02:00:00:00:00:01"`)},
		},
		Result:  &cni.Result{IPs: []cni.IP{{Address: netip.MustParsePrefix("10.1.2.3/24")}}},
		Created: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Done:    time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC),
		BootID:  "b",
		Runtime: "crio",
	}
	// The list is compared by its encoding above; cmp would look into it.
	want.List, r.List = nil, nil
	ignore := cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "resultErr" || p.String() == "due" }, cmp.Ignore())
	if diff := cmp.Diff(want, *r, equalAddr, ignore); diff != "" {
		t.Error(diff)
	}
}

// CACHE-06, SEC-04: what is no record of an attachment that could be.
func TestRecordRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, old, new, want string }{
		{"cut short within the seal", recordV1, recordV1[:100], "6 record: unexpected end of JSON input"},
		{"other state", `"attached"`, `"gone"`, `6 record: state "gone" is unknown`},
		{"key that leads elsewhere", `"c1"`, `"../c1"`, `4 record: CNI_CONTAINERID "../c1" is not a valid container ID: ` +
			`it must start with a letter or digit and hold only letters, digits, '_', '.' and '-'`},
		{"configuration that is none", `"plugins":[{"big":9007199254740993,"type":"first"}]`, `"plugins":[]`, "7 record: network red: plugins is empty"},
		{"configuration without plugins", `"config":{"cniVersion":"1.0.0","extra":[1.10],"loadOnlyInlinedPlugins":true,"name":"red","plugins":[{"big":9007199254740993,"type":"first"}]}`,
			`"config":{"cniVersion":"1.1.0","name":"red"}`,
			"7 record: network red has no plugins: neither under the key plugins nor in a folder of the network's name"},
		{"version that nobody knows", `"cniVersion":"1.0.0","config"`, `"cniVersion":"7.0.0","config"`,
			`1 record: CNI version "7.0.0" is not supported: supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0`},
		{"unreadable arguments", `"B=1;A=2"`, `"B"`, `4 record: CNI_ARGS pair "B" is not of the form KEY=VALUE`},
	} {
		_, err := network.DecodeRecord(network.Seal([]byte(strings.Replace(recordV1, tt.old, tt.new, 1))))
		if got := describe(err); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
	}
	for name, tt := range map[string]struct{ text, want string }{
		"empty":      {"", "6 record: damaged, it is not as it was written"},
		"no seal":    {recordV1, `6 record: kind is "", not "tenonRecordV1"`},
		"other kind": {`{"kind":"tenonRecordV9"}`, `6 record: kind is "tenonRecordV9", not "tenonRecordV1"`},
		"wrong sum":  {sealedV1, "6 record: damaged, it is not as it was written"},
	} {
		_, err := network.DecodeRecord([]byte(tt.text))
		if got := describe(err); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, tt.want)
		}
	}
}

// nothing can be cut off a record, added to it or changed in it without being noticed.
func TestRecordDamageIsNoticed(t *testing.T) {
	t.Parallel()
	whole := network.Seal([]byte(recordV1))
	noticed := func(b []byte, format string, args ...any) {
		if _, err := network.DecodeRecord(b); cni.CodeOf(err) != cni.CodeDecodingFailure {
			t.Errorf(format+": %s", append(args, describe(err))...)
		}
	}
	for i := range whole {
		noticed(whole[:i], "%d bytes are left", i)
		for bit := range 8 {
			flipped := slices.Clone(whole)
			flipped[i] ^= 1 << bit
			noticed(flipped, "bit %d of byte %d is flipped", bit, i)
		}
	}
	noticed(append(slices.Clone(whole), '\n'), "a byte is added")
}

// The version of a record is the one that was selected then, even where the configuration offers a newer one.
func TestRecordKeepsVersion(t *testing.T) {
	t.Parallel()
	edited := strings.Replace(recordV1, `"config":{"cniVersion":"1.0.0"`, `"config":{"cniVersion":"1.0.0","cniVersions":["1.1.0"]`, 1)
	r, err := network.DecodeRecord(network.Seal([]byte(edited)))
	if err != nil {
		t.Fatal(err)
	}
	if r.List.Version != cni.V100 {
		t.Errorf("version %v", r.List.Version)
	}
}

// CFG-21: a single plugin is recorded as a list that is equal to it.
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

// R-03, CACHE-08: attachments whose parts read alike have records of their own.
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

// CACHE-02: private folders and files, and nothing left beside them.
func TestRecordFiles(t *testing.T) {
	t.Parallel()
	c := &network.Client{Isolated: true, Caller: invoke.Fake{"x": {}}, StateDir: filepath.Join(t.TempDir(), "a/b")}
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

// CACHE-09, R-02: listing gives what can be read and says what cannot.
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
	if err := os.Rename(paths[1], paths[0][:len(paths[0])-len("0.json")]+"f.json"); err != nil { // the name of another
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(paths[0]), ".draft.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	records, err := c.List()
	if len(records) != 1 || records[0].Attachment.Container != "c3" {
		t.Errorf("records %v", records)
	}
	if err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), paths[0]) {
		t.Errorf("got %s", describe(err))
	}
	if _, err := c.Record(request("c1").Attachment("red")); cni.CodeOf(err) != cni.CodeDecodingFailure {
		t.Errorf("damaged record: %s", describe(err))
	}
	if _, err := c.Record(request("c2").Attachment("red")); !errors.Is(err, network.ErrNoRecord) {
		t.Errorf("missing record: %s", describe(err))
	}
}

// R-08, RT-DEL-05, SEC-04: whatever has happened to a record, DEL with the network at hand cleans up, and takes nothing
// from it.
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
	body, err := network.Unseal(whole)
	if err != nil {
		t.Fatal(err)
	}
	cleansUp := func(b []byte, what string) {
		if err := os.WriteFile(recordPath(c, a), b, 0o600); err != nil {
			t.Fatal(err)
		}
		before := len(recorder.Exchanges())
		if err := c.Del(t.Context(), a, network.Fallback{Network: n, Parameters: q.Parameters}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		calls := recorder.Exchanges()[before:]
		if len(calls) != 1 || calls[0].Call.Env.ContainerID != "c1" || strings.Contains(string(calls[0].Call.Stdin), "prevResult") {
			t.Fatalf("%s: calls %v", what, calls)
		}
		if _, err := os.Stat(recordPath(c, a)); err == nil {
			t.Fatalf("%s: the record is still there", what)
		}
	}
	cleansUp(network.Seal([]byte(strings.Replace(string(body), `"c1"`, `"c2"`, 1))), "another's")
	for i := range whole {
		cleansUp(whole[:i], fmt.Sprintf("%d bytes are left", i))
		flipped := slices.Clone(whole)
		flipped[i] ^= 1
		cleansUp(flipped, fmt.Sprintf("byte %d is flipped", i))
	}
}

// SEC-05: so is a record.
func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(recordV1))
	f.Add([]byte(strings.Replace(recordV1, `"config":{`, `"config":{"type":"x",`, 1)))
	f.Add(network.Seal([]byte(recordV1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = network.DecodeRecord(b)
		r, err := network.DecodeRecord(network.Seal(b)) // what only the seal keeps out
		if err != nil {
			return
		}
		once, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := network.DecodeRecord(once)
		if err != nil {
			t.Fatalf("%v: %s", err, once)
		}
		twice, err := again.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if string(once) != string(twice) {
			t.Errorf("%s\n%s", once, twice)
		}
	})
}
