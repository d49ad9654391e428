package conformance

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
)

func TestIndexListsEveryFile(t *testing.T) {
	t.Parallel()
	entries, err := fs.ReadDir(examples, strings.TrimSuffix(directory, "/"))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, e := range entries {
		switch {
		case e.Name() == "INDEX.tsv":
		case e.IsDir():
			files = append(files, e.Name()+"/")
		default:
			files = append(files, e.Name())
		}
	}
	var listed []string
	for _, v := range vectors(t) {
		listed = append(listed, v.File)
	}
	slices.Sort(files)
	slices.Sort(listed)
	if diff := cmp.Diff(files, listed); diff != "" {
		t.Errorf("files (-embedded +listed):\n%s", diff)
	}
}

func TestVectors(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		t.Run(v.File, func(t *testing.T) {
			t.Parallel()
			if v.Verdict == Valid && v.Codes != nil {
				t.Errorf("valid, with codes %v", v.Codes)
			}
			coded := v.Kind != KindError && v.Kind != KindNetdir // a missing network has no code
			if v.Verdict == Invalid && v.Codes == nil && coded {
				t.Error("invalid, without codes")
			}
			if v.Version == "" || v.Reason == "" {
				t.Errorf("version %q, reason %q", v.Version, v.Reason)
			}
			if (v.Data == nil) != (v.Kind == KindNetdir) {
				t.Errorf("data of %d bytes", len(v.Data))
			}
		})
	}
}

func TestVectorsKeepsColumns(t *testing.T) {
	t.Parallel()
	want := Vector{
		File: "error-invalid-reserved-code-42.json", Kind: KindError, Version: "any",
		Verdict: Invalid,
		Reason:  "1-99 are reserved; only the assigned ones may be sent (a reader must still pass the number on)",
		Data:    []byte("{\n  \"cniVersion\": \"1.1.0\",\n  \"code\": 42,\n  \"msg\": \"x\"\n}\n"),
	}
	all := vectors(t)
	i := slices.IndexFunc(all, func(v Vector) bool { return v.File == want.File })
	if i < 0 {
		t.Fatalf("%s is missing", want.File)
	}
	if diff := cmp.Diff(want, all[i]); diff != "" {
		t.Errorf("vector (-want +got):\n%s", diff)
	}
}

func TestKindVerb(t *testing.T) {
	t.Parallel()
	verbs := map[cni.Command]int{}
	for _, v := range vectors(t) {
		if verb, ok := v.Kind.Verb(); ok {
			verbs[verb]++
		}
	}
	want := map[cni.Command]int{cni.Add: 15, cni.Check: 5, cni.Del: 3, cni.GC: 7, cni.Status: 2,
		cni.VersionCommand: 2}
	if diff := cmp.Diff(want, verbs); diff != "" {
		t.Errorf("requests by verb (-want +got):\n%s", diff)
	}
}

func TestParseRowRefuses(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]string{
		"too few columns":   "result-1.1.0-valid-empty.json\tresult",
		"unknown kind":      "result-1.1.0-valid-empty.json\tresults\t1.1.0\tvalid\t\t\t\t\t",
		"unknown verb":      "result-1.1.0-valid-empty.json\trequest-GET\t1.1.0\tvalid\t\t\t\t\t",
		"unknown verdict":   "result-1.1.0-valid-empty.json\tresult\t1.1.0\tfine\t\t\t\t\t",
		"code not a number": "result-1.1.0-valid-empty.json\tresult\t1.1.0\tinvalid\t6|x\t\t\t\t",
		"file is missing":   "no-such-file.json\tresult\t1.1.0\tvalid\t\t\t\t\t",
	} {
		if v, err := parseRow(row); err == nil {
			t.Errorf("%s: parsed as %+v", name, v)
		}
	}
}

func vectors(t *testing.T) []Vector {
	t.Helper()
	all, err := Vectors()
	if err != nil {
		t.Fatal(err)
	}
	return all
}
