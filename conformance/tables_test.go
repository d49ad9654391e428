package conformance

import (
	"encoding/json"
	"io/fs"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
)

func TestIdentifiers(t *testing.T) {
	t.Parallel()
	rows, err := Identifiers()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		want := map[bool]Verdict{true: Valid, false: Invalid}[r.Codes == nil]
		if r.Verdict != want {
			t.Errorf("%q: verdict %q with codes %v", r.Value, r.Verdict, r.Codes)
		}
	}
	mustHold(t, rows, Identifier{
		Field: FieldIfName, Value: "éééééééé", Verdict: Invalid,
		Codes:  []cni.Code{cni.CodeInvalidEnvironment},
		Reason: "8 characters but 16 bytes",
	})
	mustHold(t, rows, Identifier{Field: FieldNetworkName, Value: "9net", Verdict: Valid})
}

func TestVersionSelections(t *testing.T) {
	t.Parallel()
	rows, err := VersionSelections()
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rows {
		if (r.Want == "") == (r.Codes == nil) {
			t.Errorf("row %d wants version %q and codes %v", i, r.Want, r.Codes)
		}
	}
	mustHold(t, rows, VersionSelection{
		CNIVersion: json.RawMessage(`"1.0.0"`), CNIVersions: json.RawMessage(`"1.1.0"`),
		Codes: []cni.Code{cni.CodeDecodingFailure}, Reason: "not an array",
	})
	mustHold(t, rows, VersionSelection{CNIVersion: json.RawMessage(`"0.3.1"`), Want: "0.3.1"})
}

func TestCNIArgs(t *testing.T) {
	t.Parallel()
	rows, err := CNIArgs()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Verdict != Valid && r.Verdict != Invalid {
			t.Errorf("%q: verdict %q", r.Args, r.Verdict)
		}
	}
	mustHold(t, rows, Arguments{
		Args: "IP=a=b", Known: []string{"IP", "K8S_POD_NAME"}, Verdict: Invalid,
		Reason: "two equals signs",
	})
}

func TestDerivedRequests(t *testing.T) {
	t.Parallel()
	rows, err := DerivedRequests()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if (r.Verb == cni.GC) != (r.Valid != nil) {
			t.Errorf("%s: %s with valid attachments %v", r.ID, r.Verb, r.Valid)
		}
		if (r.PrevResult != nil) != (r.ID == "add-second") {
			t.Errorf("%s: prevResult %s", r.ID, r.PrevResult)
		}
	}
	i := slices.IndexFunc(rows, func(r DerivedRequest) bool { return r.ID == "del-0.3.1" })
	if i < 0 {
		t.Fatal("del-0.3.1 is missing")
	}
	want := DerivedRequest{
		ID: "del-0.3.1", Verb: cni.Del,
		// compared below, without white space
		List: rows[i].List, Plugin: rows[i].Plugin, Want: rows[i].Want,
		Capabilities: map[string]json.RawMessage{}, Upstream: []string{},
		Reason: "no prevResult on DEL before 0.4.0",
	}
	if diff := cmp.Diff(want, rows[i]); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
	wantText := `{"cniVersion":"0.3.1","name":"outer"} {"type":"loopback"} {"cniVersion":"0.3.1","name":"outer","type":"loopback"}`
	text := compact(t, rows[i].List) + " " + compact(t, rows[i].Plugin) + " " +
		compact(t, rows[i].Want)
	if diff := cmp.Diff(wantText, text); diff != "" {
		t.Errorf("documents (-want +got):\n%s", diff)
	}
}

func TestNetdirs(t *testing.T) {
	t.Parallel()
	rows, err := Netdirs()
	if err != nil {
		t.Fatal(err)
	}
	var directories []string
	for _, r := range rows {
		directories = append(directories, r.Folder+"/")
		if (r.Verdict == Valid) != (r.Plugins != nil) {
			t.Errorf("%s: %s with plugins %v", r.Folder, r.Verdict, r.Plugins)
		}
		if entries, err := fs.ReadDir(r.Files, "."); err != nil || len(entries) == 0 {
			t.Errorf("%s: %d entries, %v", r.Folder, len(entries), err)
		}
	}
	for _, v := range vectors(t) {
		if v.Kind == KindNetdir && !slices.Contains(directories, v.File) {
			t.Errorf("%s is not in the table", v.File)
		}
	}
}

func TestTableRefuses(t *testing.T) {
	t.Parallel()
	same := func(r struct{}) (struct{}, error) { return r, nil }
	if _, err := table("vectors-cni-args.json", same); err == nil {
		t.Error("a row with unknown members was accepted")
	}
	if _, err := table("no-such-file.json", same); err == nil {
		t.Error("a missing file was accepted")
	}
}

func mustHold[T any](t *testing.T, rows []T, want T) {
	t.Helper()
	if !slices.ContainsFunc(rows, func(r T) bool { return cmp.Equal(r, want) }) {
		t.Errorf("no row %+v", want)
	}
}

func compact(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	b, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
