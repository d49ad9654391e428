package cni_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenon-cni/tenon/cni"
)

func TestAsError(t *testing.T) {
	t.Parallel()
	detailed := cni.Errorf(cni.CodeInvalidConfig, "vlan 5000").WithDetails("at most 4094")
	for name, test := range map[string]struct {
		err  error
		want cni.Error
	}{
		"not wrapped": {detailed, cni.Error{Code: cni.CodeInvalidConfig, Msg: "vlan 5000",
			Details: "at most 4094"}},
		"without a code": {
			fmt.Errorf("read: %w", io.ErrUnexpectedEOF),
			cni.Error{Code: cni.CodeInternal, Msg: "read: unexpected EOF"},
		},
		"wrapped": {
			fmt.Errorf("bridge: %w", detailed),
			cni.Error{Code: cni.CodeInvalidConfig, Msg: "bridge: vlan 5000",
				Details: "at most 4094"},
		},
		"wrapped in the middle": {
			fmt.Errorf("bridge: %w, nothing was changed", detailed),
			cni.Error{Code: cni.CodeInvalidConfig, Msg: "bridge: vlan 5000, nothing was changed",
				Details: "at most 4094"},
		},
		"details that occur elsewhere": {
			fmt.Errorf("try: at most 4094: %w", detailed),
			cni.Error{Code: cni.CodeInvalidConfig, Msg: "try: at most 4094: vlan 5000",
				Details: "at most 4094"},
		},
		"the outermost code counts": {
			fmt.Errorf("STATUS: %w", cni.Errorf(cni.CodeNotAvailable, "bridge: %w", detailed)),
			cni.Error{Code: cni.CodeNotAvailable, Msg: "STATUS: bridge: vlan 5000: at most 4094"},
		},
		"joined: the first code counts, the message has all": {
			fmt.Errorf("GC: %w", errors.Join(
				io.EOF, detailed, cni.Errorf(cni.CodeTryAgainLater,
					"lock").WithDetails("held by 17"))),
			cni.Error{
				Code: cni.CodeInvalidConfig, Msg: "GC: EOF\nvlan 5000\nlock: held by 17",
				Details: "at most 4094",
			},
		},
		"joined without a code": {
			errors.Join(io.EOF, io.ErrClosedPipe),
			cni.Error{Code: cni.CodeInternal, Msg: "EOF\nio: read/write on closed pipe"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := cni.AsError(test.err)
			if diff := cmp.Diff(test.want, *e, cmpopts.IgnoreUnexported(cni.Error{})); diff != "" {
				t.Errorf("error object (-want +got):\n%s", diff)
			}
			if code := cni.CodeOf(test.err); code != e.Code {
				t.Errorf("code %d", code)
			}
			if e.Unwrap() != test.err && error(e) != test.err {
				t.Errorf("cause %v", e.Unwrap())
			}
		})
	}
	if e := cni.AsError(nil); e != nil || cni.CodeOf(nil) != 0 {
		t.Errorf("nil: %v, code %d", e, cni.CodeOf(nil))
	}
}

func TestErrorKeepsCause(t *testing.T) {
	t.Parallel()
	e := cni.Errorf(cni.CodeIOFailure, "lease file: %w", io.ErrShortWrite).WithDetails("disk full?")
	if !errors.Is(fmt.Errorf("host-local: %w", e), io.ErrShortWrite) {
		t.Error("the cause is not reachable")
	}
	if e.Error() != "lease file: short write: disk full?" {
		t.Errorf("text %q", e)
	}
}

func TestWithDetailsCopies(t *testing.T) {
	t.Parallel()
	e := cni.Errorf(cni.CodeIOFailure, "lease file")
	if e.WithDetails("disk full?"); e.Details != "" {
		t.Errorf("details %q", e.Details)
	}
}

// ERR-05
func TestEncodeError(t *testing.T) {
	t.Parallel()
	e := cni.Errorf(cni.CodeInvalidConfig, "mode %q", "<x>").WithDetails("known: a, b")
	for v, want := range map[cni.Version]string{
		cni.V040: `{"cniVersion":"0.4.0","code":7,"msg":"mode \"<x>\"","details":"known: a, b"}`,
		0:        `{"cniVersion":"1.1.0","code":7,"msg":"mode \"<x>\"","details":"known: a, b"}`,
	} {
		if got := e.Encode(v); string(got) != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := e.WithDetails("").Encode(cni.V110); string(got) != `{"cniVersion":"1.1.0","code":7,"msg":"mode \"<x>\""}` {
		t.Errorf("without details: %s", got)
	}
}

// DIS-02: readers do not need the version.
func TestDecodeError(t *testing.T) {
	t.Parallel()
	const strictly, tolerantly = true, false
	for _, test := range []struct {
		name, in string
		strict   bool
		want     cni.Error // the error object
		code     cni.Code  // of the error
	}{
		{"all members", `{"cniVersion":"1.0.0","code":7,"msg":"m","details":"d"}`, strictly,
			cni.Error{Code: 7, Msg: "m", Details: "d"}, 0},
		{"an unassigned code is passed on", `{"code":42,"msg":"m"}`, tolerantly,
			cni.Error{Code: 42, Msg: "m"}, 0},
		{"a code without a message is passed on", `{"code":11,"details":"d"}`, tolerantly,
			cni.Error{Code: 11, Msg: "error without a message", Details: "d"}, 0},
		{"readers ignore the version", `{"cniVersion":5,"code":7,"msg":"m"}`, tolerantly,
			cni.Error{Code: 7, Msg: "m"}, 0},
		{"no code", `{"msg":"m"}`, tolerantly, cni.Error{}, cni.CodeDecodingFailure},
		{"null code", `{"code":null,"msg":"m"}`, tolerantly, cni.Error{}, cni.CodeDecodingFailure},
		{"code as text", `{"code":"7","msg":"m"}`, tolerantly, cni.Error{},
			cni.CodeDecodingFailure},
		{"null", `null`, tolerantly, cni.Error{}, cni.CodeDecodingFailure},
		{"nothing", "", tolerantly, cni.Error{}, cni.CodeDecodingFailure},
		{"two documents", `{"code":7,"msg":"m"}{}`, tolerantly, cni.Error{},
			cni.CodeDecodingFailure},
		{"unassigned", `{"code":9,"msg":"m"}`, strictly, cni.Error{}, cni.CodeInvalidConfig},
		{"none", `{"code":0,"msg":"m"}`, strictly, cni.Error{}, cni.CodeInvalidConfig},
		{"last reserved code", `{"code":99,"msg":"m"}`, strictly, cni.Error{},
			cni.CodeInvalidConfig},
		{"first code of plugins", `{"code":100,"msg":"m"}`, strictly,
			cni.Error{Code: 100, Msg: "m"}, 0},
		{"an old version with a newer code", `{"cniVersion":"0.3.1","code":7,"msg":"m"}`, strictly,
			cni.Error{Code: 7, Msg: "m"}, 0},
		{"STATUS before 1.1.0", `{"cniVersion":"0.4.0","code":51,"msg":"m"}`, strictly, cni.Error{},
			cni.CodeInvalidConfig},
		{"STATUS without a version", `{"code":51,"msg":"m"}`, strictly,
			cni.Error{Code: 51, Msg: "m"}, 0},
		{"version that is not text", `{"cniVersion":5,"code":7,"msg":"m"}`, strictly, cni.Error{},
			cni.CodeDecodingFailure},
		{"version that is not a version", `{"cniVersion":"latest","code":7,"msg":"m"}`, strictly,
			cni.Error{}, cni.CodeDecodingFailure},
		{"version that is not published", `{"cniVersion":"3.0.0","code":7,"msg":"m"}`, strictly,
			cni.Error{}, cni.CodeIncompatibleVersion},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			decode := map[bool]func([]byte) (*cni.Error, error){strictly: cni.DecodeErrorStrict,
				tolerantly: cni.DecodeError}
			e, err := decode[test.strict]([]byte(test.in))
			if cni.CodeOf(err) != test.code {
				t.Fatalf("%v, %v, want code %d", e, err, test.code)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(test.want, *e, cmpopts.IgnoreUnexported(cni.Error{})); diff != "" {
				t.Errorf("error object (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeFailure(t *testing.T) {
	t.Parallel()
	var conf struct {
		MTU   int64 `json:"mtu"`
		Table uint8 `json:"table"`
		IPAM  struct {
			Routes []cni.Route `json:"routes"`
		} `json:"ipam"`
	}
	for in, want := range map[string]cni.Error{
		`{"mtu":"1500"}`:           {Code: cni.CodeDecodingFailure, Msg: "conf: mtu: expected an integer, found a string"},
		`[]`:                       {Code: cni.CodeDecodingFailure, Msg: "conf: expected an object, found an array"},
		`{"table":256}`:            {Code: cni.CodeDecodingFailure, Msg: "conf: table: expected an integer from 0 to 255, found 256"},
		`{`:                        {Code: cni.CodeDecodingFailure, Msg: "conf: unexpected end of JSON input"},
		`{"ipam":{"routes":[{}]}}`: {Code: cni.CodeInvalidConfig, Msg: "conf: route: dst is missing"},
	} {
		e := cni.DecodeFailure("conf", json.Unmarshal([]byte(in), &conf))
		if diff := cmp.Diff(want, *e, cmpopts.IgnoreUnexported(cni.Error{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

// The decoders of this package keep details when they wrap an error.
func TestDecodersKeepDetails(t *testing.T) {
	t.Parallel()
	_, err := cni.ParseList([]byte(`{"name":"n","cniVersion":"9.9.9","plugins":[{"type":"p"}]}`))
	want := cni.Error{
		Code: cni.CodeIncompatibleVersion, Msg: `network n: CNI version "9.9.9" is not supported`,
		Details: "supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0",
	}
	if diff := cmp.Diff(want, *cni.AsError(err),
		cmpopts.IgnoreUnexported(cni.Error{})); diff != "" {
		t.Errorf("error object (-want +got):\n%s", diff)
	}
}
