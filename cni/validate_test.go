package cni_test

import (
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

// Cases that the tables of package conformance omit.
func TestValidateIfName(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"eth0":    true,
		"é":       true,
		"\xff":    true,  // a name is bytes
		"à":       false, // c3 a0: to the kernel, the second byte is white space
		"a\u0085": false, // next line
		"eth%d":   false, // the kernel would expand it to eth0
		"a\x00b":  false,
		"a\vb":    false,
	} {
		err := cni.ValidateIfName(name)
		if (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		}
		if err != nil && (cni.CodeOf(err) != cni.CodeInvalidEnvironment ||
			!strings.Contains(err.Error(), "CNI_IFNAME")) {
			t.Errorf("%q: code %d, %v", name, cni.CodeOf(err), err)
		}
	}
}

func TestValidatePluginType(t *testing.T) {
	t.Parallel()
	for typ, valid := range map[string]bool{
		"bridge": true, "host-local": true, "my plugin": true, "...": true, `a\b`: true,
		"": false, ".": false, "..": false, "a/b": false, "/": false, "a\x00": false,
	} {
		if err := cni.ValidatePluginType(typ); (err == nil) != valid || !valid &&
			cni.CodeOf(err) != cni.CodeInvalidConfig {
			t.Errorf("%q: %v", typ, err)
		}
	}
}
