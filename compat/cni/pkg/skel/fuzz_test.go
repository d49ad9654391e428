package skel

import (
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// FuzzRequest sends any configuration with any names and version to the dispatcher. A call either
// reaches its callback or fails with a documented code and a message.
func FuzzRequest(f *testing.F) {
	f.Add("ADD", "web", "eth0", config("1.0.0"))
	f.Add("CHECK", "web", "eth0", config("0.3.1"))
	f.Add("GC", "", "", `{"cniVersion":"1.1.0","name":"pods","cni.dev/valid-attachments":[]}`)
	f.Add("DEL", "a b", ".", `{"name":"a b"}`)
	f.Add("STATUS", "", "", `{"cniVersion":"0.-42.0","name":"pods"}`)
	f.Add("ADD", "web", "eth0", `null`)
	codes := []uint{types.ErrIncompatibleCNIVersion, types.ErrInvalidEnvironmentVariables,
		types.ErrDecodingFailure, types.ErrInvalidNetworkConfig}
	f.Fuzz(func(t *testing.T, verb, id, ifName, stdin string) {
		env := environment(verb, "CNI_CONTAINERID", id, "CNI_IFNAME", ifName)
		got := request{env: env, stdin: strings.NewReader(stdin)}.run()
		switch {
		case got.err == nil:
			if got.called != verb && verb != "VERSION" {
				t.Errorf("success without the callback: %v", got)
			}
		case got.called != "" || got.err.Msg == "" || !slices.Contains(codes, got.err.Code):
			t.Errorf("%v", got)
		}
	})
}
