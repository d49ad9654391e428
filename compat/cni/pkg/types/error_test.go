package types_test

import (
	"encoding/json"
	"io"
	"os"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

func TestErrorText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  *types.Error
		text string
		json string
	}{
		{"message and details", types.NewError(7, "bad subnet", "no prefix"),
			"bad subnet; no prefix", `{"code":7,"msg":"bad subnet","details":"no prefix"}`},
		{"no details", types.NewError(11, "busy", ""), "busy", `{"code":11,"msg":"busy"}`},
		{"code and message are always encoded", &types.Error{}, "", `{"code":0,"msg":""}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.err.Error(); got != tt.text {
				t.Errorf("text %q, want %q", got, tt.text)
			}
			if b, err := json.Marshal(tt.err); err != nil || string(b) != tt.json {
				t.Errorf("%s, %v, want %s", b, err, tt.json)
			}
		})
	}
}

// Not parallel: it replaces os.Stdout.
func TestErrorPrint(t *testing.T) {
	e := types.NewError(types.ErrPluginNotAvailable, "no <daemon>", "d")
	got := stdout(t, e.Print)
	want := `{
    "code": 50,
    "msg": "no \u003cdaemon\u003e",
    "details": "d"
}`
	if got != want {
		t.Errorf("printed %q, want %q", got, want)
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

func TestErrorCodes(t *testing.T) {
	t.Parallel()
	codes := []uint{
		types.ErrUnknown, types.ErrIncompatibleCNIVersion, types.ErrUnsupportedField,
		types.ErrUnknownContainer, types.ErrInvalidEnvironmentVariables, types.ErrIOFailure,
		types.ErrDecodingFailure, types.ErrInvalidNetworkConfig, types.ErrInvalidNetNS,
		types.ErrTryAgainLater, types.ErrPluginNotAvailable, types.ErrLimitedConnectivity,
		types.ErrInternal,
	}
	for i, want := range []uint{0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 50, 51, 999} {
		if codes[i] != want {
			t.Errorf("code %d, want %d", codes[i], want)
		}
	}
}
