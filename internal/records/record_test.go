package records_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
)

// equalAddr lets cmp compare addresses.
var equalAddr = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// describe formats an error with its code.
func describe(err error) string {
	if err == nil {
		return "success"
	}
	return fmt.Sprintf("%d %v", cni.CodeOf(err), err)
}

// The format on disk must never change, because records outlive the program that wrote them.
const recordV1 = `{"network":"red","container":"c1","ifname":"eth0","runtime":"crio","state":"attached",` +
	`"netns":"/run/netns/x","hostNetns":true,"cniVersion":"1.0.0","config":{"cniVersion":"1.0.0","extra":[1.10],` +
	`"loadOnlyInlinedPlugins":true,"name":"red","plugins":[{"big":9007199254740993,"type":"first"}]},` +
	`"args":"B=1;A=2","capabilityArgs":{"mac":"02:00:00:00:00:01"},` +
	`"result":{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]},` +
	`"created":"2026-01-02T03:04:05.000000006Z","done":"2026-01-02T03:04:06Z","bootID":"b"}`

// sealedV1 is the whole file.
const sealedV1 = `{"kind":"tenonRecordV1","sha256":"SUM","record":` + recordV1 + "}\n"

// CACHE-03, CACHE-04: a record keeps all arguments of ADD, and the effective configuration
// unchanged.
func TestRecordFormat(t *testing.T) {
	t.Parallel()
	sealed := strings.Replace(sealedV1, "SUM", fmt.Sprintf("%x", sha256.Sum256([]byte(recordV1))),
		1)
	r, err := records.DecodeRecord([]byte(sealed))
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
	want := records.Record{
		Attachment: cni.Attachment{Network: "red", Container: "c1", IfName: "eth0"},
		State:      records.Attached,
		List:       r.List,
		Parameters: records.Parameters{
			Netns: "/run/netns/x", HostNetns: true,
			Args:         cni.Args{{Key: "B", Value: "1"}, {Key: "A", Value: "2"}},
			Capabilities: map[string]json.RawMessage{"mac": json.RawMessage(`"02:00:00:00:00:01"`)},
		},
		Result:  &cni.Result{IPs: []cni.IP{{Address: netip.MustParsePrefix("10.1.2.3/24")}}},
		Created: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Done:    time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC),
		BootID:  "b",
		Runtime: "crio",
	}
	// The list is compared by its encoding above; cmp would compare its unexported fields.
	want.List, r.List = nil, nil
	if diff := cmp.Diff(want, *r, equalAddr); diff != "" {
		t.Error(diff)
	}
}

// CACHE-06, SEC-04: decoding refuses records that Add cannot have written.
func TestRecordRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, old, new, want string }{
		{"truncated within the seal", recordV1, recordV1[:100],
			"6 record: unexpected end of JSON input"},
		{"other state", `"attached"`, `"gone"`, `6 record: unknown state "gone"`},
		{"key that leads out of the directory", `"c1"`, `"../c1"`,
			`4 record: CNI_CONTAINERID "../c1" is not a valid container ID: ` +
				`it must start with a letter or digit and hold only letters, digits, '_', '.' and '-'`},
		{"invalid configuration", `"plugins":[{"big":9007199254740993,"type":"first"}]`,
			`"plugins":[]`, "7 record: network red: plugins is empty"},
		{"configuration without plugins",
			`"config":{"cniVersion":"1.0.0","extra":[1.10],"loadOnlyInlinedPlugins":true,"name":"red","plugins":[{"big":9007199254740993,"type":"first"}]}`,
			`"config":{"cniVersion":"1.1.0","name":"red"}`,
			"7 record: network red has no plugins: neither under the key plugins nor in a drop-in directory"},
		{"unknown version", `"cniVersion":"1.0.0","config"`, `"cniVersion":"7.0.0","config"`,
			`1 record: CNI version "7.0.0" is not supported: supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0`},
		{"unreadable arguments", `"B=1;A=2"`, `"B"`,
			`4 record: CNI_ARGS pair "B" is not of the form KEY=VALUE`},
	} {
		changed := strings.Replace(recordV1, tt.old, tt.new, 1)
		_, err := records.DecodeRecord(records.Seal([]byte(changed)))
		if got := describe(err); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
	}
	for name, tt := range map[string]struct{ text, want string }{
		"empty":   {"", "6 record is damaged or incomplete"},
		"no seal": {recordV1, `6 record: kind is "", not "tenonRecordV1"`},
		"other kind": {`{"kind":"tenonRecordV9"}`,
			`6 record: kind is "tenonRecordV9", not "tenonRecordV1"`},
		"wrong sum": {sealedV1, "6 record is damaged or incomplete"},
	} {
		_, err := records.DecodeRecord([]byte(tt.text))
		if got := describe(err); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, tt.want)
		}
	}
}

// every truncation, addition and change of a record is noticed.
func TestRecordDamageIsNoticed(t *testing.T) {
	t.Parallel()
	whole := records.Seal([]byte(recordV1))
	noticed := func(b []byte, format string, args ...any) {
		if _, err := records.DecodeRecord(b); cni.CodeOf(err) != cni.CodeDecodingFailure {
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

// The version of a record is the version that ADD selected, even if the configuration offers a
// newer one.
func TestRecordKeepsVersion(t *testing.T) {
	t.Parallel()
	edited := strings.Replace(recordV1, `"config":{"cniVersion":"1.0.0"`,
		`"config":{"cniVersion":"1.0.0","cniVersions":["1.1.0"]`, 1)
	r, err := records.DecodeRecord(records.Seal([]byte(edited)))
	if err != nil {
		t.Fatal(err)
	}
	if r.List.Version != cni.V100 {
		t.Errorf("version %v", r.List.Version)
	}
}

// SEC-05: any program can write a record.
func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(recordV1))
	f.Add([]byte(strings.Replace(recordV1, `"config":{`, `"config":{"type":"x",`, 1)))
	f.Add(records.Seal([]byte(recordV1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = records.DecodeRecord(b)
		r, err := records.DecodeRecord(records.Seal(b)) // with a valid seal
		if err != nil {
			return
		}
		once, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := records.DecodeRecord(once)
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
