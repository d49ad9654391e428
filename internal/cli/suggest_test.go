package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Unknown commands and flags get a hint: a word of other tools, or the nearest word.
func TestSuggestions(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"list":                `did you mean "tenon ps", "tenon net list" or "tenon ipam list"?`,
		"ls":                  `did you mean "tenon ps", "tenon net list" or "tenon ipam list"?`,
		"rm":                  `did you mean "tenon del", "tenon net rm" or "tenon ipam release"?`,
		"attach":              `did you mean "tenon add"?`,
		"detach":              `did you mean "tenon del"?`,
		"show":                `did you mean "tenon inspect", "tenon net show" or "tenon ipam show"?`,
		"lint":                `did you mean "tenon net lint"?`,
		"release":             `did you mean "tenon ipam release"?`,
		"ad":                  `did you mean "tenon add"?`,
		"chekc":               `did you mean "tenon check"?`,
		"xyzzy":               "",
		"net ls":              `did you mean "tenon net list"?`,
		"net remove":          `did you mean "tenon net rm"?`,
		"net lnt":             `did you mean "tenon net lint"?`,
		"ipam free":           `did you mean "tenon ipam release"?`,
		"add --interface":     `did you mean "--ifname"?`,
		"add --iface":         `did you mean "--ifname"?`,
		"add --container":     `did you mean "--id"?`,
		"add --netns":         "NETNS is an argument: tenon add NETWORK NETNS [flags]",
		"add --network":       "NETWORK is an argument: tenon add NETWORK NETNS [flags]",
		"add --jsno":          `did you mean "--json"?`,
		"add --config":        `did you mean "--net-dir"?`,
		"add --bin-dir":       `did you mean "--plugin-dir"?`,
		"logs --watch":        `did you mean "--follow"?`,
		"ps --format":         `did you mean "--output"?`,
		"ps -o jsn":           `did you mean "json"?`,
		"ps -o xml":           "the formats are wide, json, yaml, go-template",
		"add -o wide":         "the formats are json, yaml, go-template",
		"ps -o go-template":   `quote the template for the shell: -o go-template='{{range .}}{{json .}}{{"\n"}}{{end}}'`,
		"ps -ogo-template={{": `quote the template for the shell: -o go-template='{{range .}}{{json .}}{{"\n"}}{{end}}'`,
		"add --debug":         `did you mean "--verbose"?`,
		"add --ip":            `use a capability: --cap 'ips=["10.88.0.9"]'`,
		"add --ports":         `did you mean "--publish"?`,
		"net new --publish":   `did you mean "--with"?`,
		"inspect --container": "CONTAINER is an argument: tenon inspect [NETWORK] CONTAINER [flags]",
		"ps --replace":        "commands with --replace: add, plan add, trace add",
		"ps --xyzzy":          "",
	} {
		a := &app{stdout: &output{file: temporary(t)}, stderr: newOutput(temporary(t))}
		root := a.root()
		root.SetArgs(strings.Fields(args))
		err := root.Execute()
		got := ""
		if h := (hinted{}); errors.As(err, &h) {
			got = strings.Join(h.hints, "\n")
		}
		if diff := cmp.Diff(want, got); diff != "" || !errors.As(err, new(usageError)) {
			t.Errorf("%s: %v (-want +got)\n%s", args, err, diff)
		}
	}
}
