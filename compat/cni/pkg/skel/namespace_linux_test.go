package skel

import (
	"strings"
	"testing"
)

// TestOwnNamespace calls a plugin with its own network namespace in CNI_NETNS. ADD must not run, so
// that standard output has the error only; DEL cleans up first.
func TestOwnNamespace(t *testing.T) {
	t.Parallel()
	const own, failure = "/proc/self/ns/net",
		`error 8 "plugin's netns and netns from CNI_NETNS should not be the same" ""`
	for name, row := range map[string]struct {
		env  map[string]string
		want string
	}{
		"ADD":                   {environment("ADD", "CNI_NETNS", own), "called [], " + failure},
		"DEL":                   {environment("DEL", "CNI_NETNS", own), "called [DEL], " + failure},
		"CHECK has no test":     {environment("CHECK", "CNI_NETNS", own), "called [CHECK]"},
		"GC has no test":        {environment("GC", "CNI_NETNS", own), "called [GC]"},
		"override with 1":       {environment("ADD", "CNI_NETNS", own, "CNI_NETNS_OVERRIDE", "1"), "called [ADD]"},
		"override with true":    {environment("ADD", "CNI_NETNS", own, "CNI_NETNS_OVERRIDE", "tRUe"), "called [ADD]"},
		"DEL with an override":  {environment("DEL", "CNI_NETNS", own, "CNI_NETNS_OVERRIDE", "true"), "called [DEL]"},
		"not an override":       {environment("ADD", "CNI_NETNS", own, "CNI_NETNS_OVERRIDE", "yes"), "called [], " + failure},
		"DEL without namespace": {environment("DEL", "CNI_NETNS", ""), "called [DEL]"},
		"no such path":          {environment("ADD", "CNI_NETNS", own+"/none"), "called [ADD]"},
	} {
		if got := (request{env: row.env}).run(); got.String() != row.want {
			t.Errorf("%s: %v, want %s", name, got, row.want)
		}
	}
	nothing := CNIFuncs{Check: func(*CmdArgs) error { return nil }}
	for _, verb := range []string{"ADD", "DEL"} {
		got := request{env: environment(verb, "CNI_NETNS", own), funcs: nothing}.run()
		if got.String() != "called [], "+failure {
			t.Errorf("%s without a callback: %v", verb, got)
		}
	}
	got := request{env: environment("ADD", "CNI_NETNS", own), stdin: strings.NewReader(config("9.0.0"))}.run()
	if got.err == nil || got.err.Code != 1 {
		t.Errorf("version that is not supported: %v", got)
	}
}
