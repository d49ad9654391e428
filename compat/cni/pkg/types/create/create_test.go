package create_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types020 "github.com/containernetworking/cni/pkg/types/020"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
)

// versions are all versions and the Go types of their results.
var versions = []struct{ version, typ string }{
	{"0.1.0", "*types020.Result"},
	{"0.2.0", "*types020.Result"},
	{"0.3.0", "*types040.Result"},
	{"0.3.1", "*types040.Result"},
	{"0.4.0", "*types040.Result"},
	{"1.0.0", "*types100.Result"},
	{"1.1.0", "*types100.Result"},
}

func TestEachVersionHasItsType(t *testing.T) {
	t.Parallel()
	for _, v := range versions {
		r, err := create.CreateFromBytes([]byte(`{"cniVersion":"` + v.version + `"}`))
		if err != nil {
			t.Error(err)
			continue
		}
		if typ := fmt.Sprintf("%T", r); typ != v.typ || r.Version() != v.version {
			t.Errorf("%s: %s of version %s", v.version, typ, r.Version())
		}
	}
	for _, in := range []string{`{}`, `null`, `{"cniVersion":""}`, `{"CNIVersion":"0.1.0"}`} {
		r, err := create.CreateFromBytes([]byte(in))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, ok := r.(*types020.Result); !ok || r.Version() != "0.1.0" {
			t.Errorf("%s: %T of version %s", in, r, r.Version())
		}
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	const supported = "but unmarshalled CNIVersion is "
	for _, tt := range []struct{ name, version, in, want, err string }{
		{"another version of the same type", "1.1.0", `{"cniVersion":"1.0.0"}`, "1.0.0", ""},
		{"empty version", "", `{"cniVersion":"0.2.0"}`, "0.2.0", ""},
		{"newer result", "0.2.0", `{"cniVersion":"1.0.0"}`, "",
			"result type supports [ 0.1.0 0.2.0] " + supported + `"1.0.0"`},
		{"older result", "1.0.0", `{"cniVersion":"0.4.0"}`, "",
			"result type supports [1.0.0 1.1.0] " + supported + `"0.4.0"`},
		{"result without version", "0.3.0", `{}`, "",
			"result type supports [0.3.0 0.3.1 0.4.0] " + supported + `""`},
		{"unknown version", "1.2.0", `{`, "", `unsupported CNI result version "1.2.0"`},
		{"versions are compared as text", "1.0", `{}`, "", `unsupported CNI result version "1.0"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := create.Create(tt.version, []byte(tt.in))
			if err != nil {
				if err.Error() != tt.err || r != nil {
					t.Errorf("%v, %v, want %s", r, err, tt.err)
				}
				return
			}
			if r.Version() != tt.want {
				t.Errorf("version %s, want %s", r.Version(), tt.want)
			}
		})
	}
}

func TestDecodeVersion(t *testing.T) {
	t.Parallel()
	const prefix = "decoding version from network config: "
	for _, tt := range []struct{ in, want, err string }{
		{`{"cniVersion":"1.0.0"}`, "1.0.0", ""},
		{`{"CNIVERSION":"x"}`, "x", ""},
		{`{"cniVersion":""}`, "0.1.0", ""},
		{`{"cniVersion":null}`, "0.1.0", ""},
		{`{}`, "0.1.0", ""},
		{`null`, "0.1.0", ""},
		{``, "", prefix + "unexpected end of JSON input"},
		{`{"cniVersion":1}`, "",
			prefix + "json: cannot unmarshal number into Go struct field .cniVersion of type string"},
	} {
		got, err := create.DecodeVersion([]byte(tt.in))
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != tt.want || text != tt.err {
			t.Errorf("%s: %q, %q, want %q, %q", tt.in, got, text, tt.want, tt.err)
		}
	}
	if _, err := create.CreateFromBytes([]byte("[]")); err == nil {
		t.Error("an array is accepted")
	}
}

// Not parallel: it replaces os.Stdout.
func TestPrintResult(t *testing.T) {
	r, err := create.CreateFromBytes([]byte(
		`{"cniVersion":"1.1.0","ips":[{"interface":0,"address":"10.0.0.5/24"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{
		"1.1.0": `{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.5/24","interface":0}]}`,
		"0.4.0": `{"cniVersion":"0.4.0","ips":[{"version":"4","interface":0,` +
			`"address":"10.0.0.5/24"}],"dns":{}}`,
		"0.2.0": `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.5/24"},"dns":{}}`,
	} {
		printed := stdout(t, func() error { return types.PrintResult(r, version) })
		var raw json.RawMessage = []byte(want)
		indented, err := json.MarshalIndent(raw, "", "    ")
		if err != nil {
			t.Fatal(err)
		}
		if printed != string(indented) {
			t.Errorf("%s: %s\nwant %s", version, printed, indented)
		}
	}
	err = types.PrintResult(&types100.Result{}, "0.2.0")
	if err == nil || err.Error() != "cannot convert: no valid IP addresses" {
		t.Errorf("%v", err)
	}
}

// stdout returns what f writes to standard output.
func stdout(t *testing.T, f func() error) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	own := os.Stdout
	os.Stdout = w
	err = f()
	os.Stdout = own
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
