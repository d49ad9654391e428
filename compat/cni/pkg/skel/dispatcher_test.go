package skel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// request is one call of a plugin.
type request struct {
	env     map[string]string
	stdin   io.Reader
	plugin  version.PluginInfo // nil: all versions
	about   string
	failure error    // what each callback returns
	funcs   CNIFuncs // instead of the callbacks that record their calls
}

// outcome is the observable result of a call.
type outcome struct {
	called         string   // the verbs of the callbacks
	args           *CmdArgs // of the last callback
	stdout, stderr string
	err            *types.Error
}

// String names the callbacks that ran and the error.
func (o outcome) String() string {
	if o.err == nil {
		return "called [" + o.called + "]"
	}
	return fmt.Sprintf("called [%s], error %d %q %q", o.called, o.err.Code, o.err.Msg, o.err.Details)
}

func (r request) run() outcome {
	var o outcome
	record := func(verb string) func(*CmdArgs) error {
		return func(args *CmdArgs) error {
			o.called += verb
			o.args = args
			return r.failure
		}
	}
	if r.stdin == nil {
		r.stdin = strings.NewReader(config("1.1.0"))
	}
	if r.plugin == nil {
		r.plugin = version.All
	}
	if reflect.ValueOf(r.funcs).IsZero() {
		r.funcs = CNIFuncs{Add: record("ADD"), Del: record("DEL"), Check: record("CHECK"),
			GC: record("GC"), Status: record("STATUS")}
	}
	var stdout, stderr bytes.Buffer
	d := dispatcher{
		Getenv: func(key string) string { return r.env[key] },
		Stdin:  r.stdin, Stdout: &stdout, Stderr: &stderr,
	}
	o.err = d.pluginMain(r.funcs, r.plugin, r.about)
	o.stdout, o.stderr = stdout.String(), stderr.String()
	return o
}

func config(v string) string {
	return fmt.Sprintf(`{"cniVersion": %q, "name": "pods", "type": "test"}`, v)
}

// environment returns all variables, changed by pairs of name and value.
func environment(verb string, changes ...string) map[string]string {
	env := map[string]string{
		"CNI_COMMAND": verb, "CNI_CONTAINERID": "web-1", "CNI_NETNS": "/run/netns/none",
		"CNI_IFNAME": "eth0", "CNI_ARGS": "A=b", "CNI_PATH": "/opt/cni/bin:/bin",
		"CNI_NETNS_OVERRIDE": "0",
	}
	for pair := range slices.Chunk(changes, 2) {
		env[pair[0]] = pair[1]
	}
	return env
}

func TestCallbackGetsAllArguments(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"ADD", "DEL", "CHECK", "GC", "STATUS"} {
		got := request{env: environment(verb)}.run()
		if got.String() != "called ["+verb+"]" || got.stdout+got.stderr != "" {
			t.Errorf("%s: %v, output %q %q", verb, got, got.stdout, got.stderr)
		}
		want := &CmdArgs{ContainerID: "web-1", Netns: "/run/netns/none", IfName: "eth0", Args: "A=b",
			Path: "/opt/cni/bin:/bin", NetnsOverride: "0", StdinData: []byte(config("1.1.0"))}
		if !reflect.DeepEqual(got.args, want) {
			t.Errorf("%s: arguments %+v, want %+v", verb, got.args, want)
		}
	}
}

func TestNilCallbackSucceeds(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"ADD", "DEL", "CHECK", "GC", "STATUS"} {
		unused := func(*CmdArgs) error { return errors.New("called") }
		funcs := CNIFuncs{Add: unused}
		if verb == "ADD" {
			funcs = CNIFuncs{Del: unused}
		}
		if got := (request{env: environment(verb), funcs: funcs}).run(); got.err != nil {
			t.Errorf("%s: %v", verb, got)
		}
	}
}

// TestVariables leaves out one variable at a time.
func TestVariables(t *testing.T) {
	t.Parallel()
	required := map[string][]string{
		"ADD":     {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"},
		"CHECK":   {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"},
		"DEL":     {"CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"},
		"GC":      {"CNI_PATH"},
		"STATUS":  {"CNI_PATH"},
		"VERSION": {},
	}
	for verb, needs := range required {
		for variable := range maps.Keys(environment(verb)) {
			if variable == "CNI_COMMAND" {
				continue
			}
			want := "called [" + strings.TrimPrefix(verb, "VERSION") + "]"
			if slices.Contains(needs, variable) {
				want = fmt.Sprintf("called [], error 4 %q %q", "required env variables ["+variable+"] missing", "")
			}
			if got := (request{env: environment(verb, variable, "")}).run(); got.String() != want {
				t.Errorf("%s without %s: %v, want %s", verb, variable, got, want)
			}
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	const badName = "interface name contains / or : or whitespace characters"
	for name, row := range map[string]struct {
		env  map[string]string
		want string
	}{
		"all missing, in order": {map[string]string{"CNI_COMMAND": "ADD"},
			`called [], error 4 "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing" ""`},
		"no command: no other variable": {nil,
			`called [], error 4 "required env variables [CNI_COMMAND] missing" ""`},
		"container ID": {environment("ADD", "CNI_CONTAINERID", "a/b"),
			`called [], error 4 "invalid characters in containerID" "a/b"`},
		"invalid before missing": {environment("ADD", "CNI_NETNS", "", "CNI_IFNAME", "."),
			`called [], error 4 "interface name is . or .." ""`},
		"long interface name": {environment("DEL", "CNI_IFNAME", "abcdefghijklmnop"),
			`called [], error 4 "interface name is too long" "interface name should be less than 16 characters"`},
		"parent directory": {environment("CHECK", "CNI_IFNAME", ".."),
			`called [], error 4 "interface name is . or .." ""`},
		"slash":   {environment("ADD", "CNI_IFNAME", "a/b"), `called [], error 4 "` + badName + `" ""`},
		"colon":   {environment("ADD", "CNI_IFNAME", "a:b"), `called [], error 4 "` + badName + `" ""`},
		"blank":   {environment("ADD", "CNI_IFNAME", "a b"), `called [], error 4 "` + badName + `" ""`},
		"percent": {environment("ADD", "CNI_IFNAME", "eth%d"), `called [ADD]`},
		"GC validates nothing": {environment("GC", "CNI_CONTAINERID", "a/b", "CNI_IFNAME", "."),
			`called [GC]`},
		"unknown command": {environment("NOOP"), `called [], error 4 "unknown CNI_COMMAND: NOOP" ""`},
		"lower case":      {environment("add"), `called [], error 4 "unknown CNI_COMMAND: add" ""`},
		"unknown command requires nothing": {map[string]string{"CNI_COMMAND": "NOOP"},
			`called [], error 4 "unknown CNI_COMMAND: NOOP" ""`},
	} {
		if got := (request{env: row.env}).run(); got.String() != row.want {
			t.Errorf("%s: %v, want %s", name, got, row.want)
		}
	}
}

func TestStandardInput(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		verb  string
		stdin io.Reader
		want  string
	}{
		"failure": {"ADD", iotest.ErrReader(errors.New("no line")),
			`called [], error 5 "error reading from stdin: no line" ""`},
		"in pieces": {"ADD", iotest.OneByteReader(strings.NewReader(config("1.0.0"))), "called [ADD]"},
		"empty": {"DEL", strings.NewReader(""),
			`called [], error 6 "error unmarshall network config: unexpected end of JSON input" ""`},
		"array": {"ADD", strings.NewReader("[]"), `called [], error 6 "error unmarshall network config: ` +
			`json: cannot unmarshal array into Go value of type struct { Name string \"json:\\\"name\\\"\" }" ""`},
		"no name":    {"CHECK", strings.NewReader(`{"cniVersion":"1.0.0"}`), `called [], error 7 "missing network name" ""`},
		"empty name": {"GC", strings.NewReader(`{"name":""}`), `called [], error 7 "missing network name" ""`},
		"bad name": {"STATUS", strings.NewReader(`{"name":"a b"}`),
			`called [], error 7 "invalid characters found in network name" "a b"`},
		"bad name before unknown command": {"NOOP", strings.NewReader(`{"name":"a b"}`),
			`called [], error 7 "invalid characters found in network name" "a b"`},
		"version that is no string": {"ADD", strings.NewReader(`{"name":"a","cniVersion":1}`),
			`called [], error 6 "decoding version from network config: json: cannot unmarshal number ` +
				`into Go struct field .cniVersion of type string" ""`},
	} {
		got := request{env: environment(row.verb), stdin: row.stdin}.run()
		if got.String() != row.want {
			t.Errorf("%s: %v, want %s", name, got, row.want)
		}
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		verb, config string
		plugin       []string // nil: all versions
		want         string
	}{
		"oldest":              {"ADD", "0.1.0", nil, "called [ADD]"},
		"none is 0.1.0":       {"ADD", "", []string{"0.1.0"}, "called [ADD]"},
		"none, not supported": {"ADD", "", []string{"0.4.0", "1.0.0"}, incompatible("0.1.0", "0.4.0", "1.0.0")},
		"newer than all":      {"DEL", "2.0.0", []string{"1.0.0"}, incompatible("2.0.0", "1.0.0")},
		"ADD compares texts":  {"ADD", "latest", []string{"1.0.0"}, incompatible("latest", "1.0.0")},
		"CHECK":               {"CHECK", "0.4.0", nil, "called [CHECK]"},
		"no CHECK in 0.3.1":   {"CHECK", "0.3.1", nil, refused("config", "CHECK")},
		"old plugin of CHECK": {"CHECK", "0.4.0", []string{"0.3.0", "0.3.1"}, refused("plugin", "CHECK")},
		"newer plugin without the version": {"CHECK", "0.4.0", []string{"0.3.1", "1.0.0"},
			incompatible("0.4.0", "0.3.1", "1.0.0")},
		"GC":                   {"GC", "1.1.0", nil, "called [GC]"},
		"no GC in 1.0.0":       {"GC", "1.0.0", nil, refused("config", "GC")},
		"old plugin of GC":     {"GC", "1.1.0", []string{"1.0.0"}, refused("plugin", "GC")},
		"STATUS":               {"STATUS", "1.1.0", nil, "called [STATUS]"},
		"no STATUS in 1.0.0":   {"STATUS", "1.0.0", nil, refused("config", "STATUS")},
		"old plugin of STATUS": {"STATUS", "1.1.0", []string{"1.0.0"}, refused("plugin", "STATUS")},
		"malformed for a gate": {"CHECK", "abc", nil,
			`called [], error 6 "failed to convert major version part \"abc\": strconv.Atoi: parsing \"abc\": invalid syntax" ""`},
		"malformed version of the plugin": {"GC", "1.1.0", []string{"abc"},
			`called [], error 6 "failed to convert major version part \"abc\": strconv.Atoi: parsing \"abc\": invalid syntax" ""`},
		"malformed version behind a sufficient one": {"GC", "1.1.0", []string{"1.1.0", "abc"}, "called [GC]"},
	} {
		c := request{env: environment(row.verb), stdin: strings.NewReader(config(row.config))}
		if row.plugin != nil {
			c.plugin = version.PluginSupports(row.plugin...)
		}
		if got := c.run(); got.String() != row.want {
			t.Errorf("%s: %v, want %s", name, got, row.want)
		}
	}
}

func incompatible(config string, plugin ...string) string {
	return fmt.Sprintf("called [], error 1 %q %q", "incompatible CNI versions",
		fmt.Sprintf("config is %q, plugin supports %q", config, plugin))
}

func refused(part, verb string) string {
	return fmt.Sprintf("called [], error 1 %q %q", part+" version does not allow "+verb, "")
}

func TestVersionCommand(t *testing.T) {
	t.Parallel()
	c := request{
		env:    map[string]string{"CNI_COMMAND": "VERSION"},
		stdin:  iotest.ErrReader(errors.New("read")),
		plugin: version.PluginSupports("0.4.0", "1.0.0"),
		about:  "a plugin",
	}
	got := c.run()
	const want = `{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0"]}` + "\n"
	if got.String() != "called []" || got.stdout != want || got.stderr != "" {
		t.Errorf("%v, output %q %q, want %q", got, got.stdout, got.stderr, want)
	}
	c.plugin = mute{}
	if got := c.run(); got.String() != `called [], error 5 "no line" ""` {
		t.Errorf("reply that cannot be written: %v", got)
	}
}

// mute is a plugin that cannot reply to VERSION.
type mute struct{}

func (mute) SupportedVersions() []string { return nil }
func (mute) Encode(io.Writer) error      { return errors.New("no line") }

func TestAbout(t *testing.T) {
	t.Parallel()
	c := request{plugin: version.PluginSupports("0.4.0", "1.0.0"), about: "CNI test plugin v1",
		stdin: iotest.ErrReader(errors.New("read"))}
	const want = "CNI test plugin v1\nCNI protocol versions supported: 0.4.0, 1.0.0\n"
	if got := c.run(); got.String() != "called []" || got.stderr != want || got.stdout != "" {
		t.Errorf("%v, output %q %q, want %q", got, got.stdout, got.stderr, want)
	}
	c.env = environment("ADD", "CNI_NETNS", "")
	if got := c.run(); got.err == nil || got.stderr != "" {
		t.Errorf("with a command: %v, %q", got, got.stderr)
	}
}

func TestErrorsOfCallbacks(t *testing.T) {
	t.Parallel()
	typed := types.NewError(types.ErrTryAgainLater, "busy", "lock of web")
	plain := types.NewError(7, "no subnet", "")
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"plain":           {errors.New("no line"), `called [ADD], error 999 "no line" ""`},
		"typed":           {typed, `called [ADD], error 11 "busy" "lock of web"`},
		"typed nil":       {(*types.Error)(nil), "called [ADD]"},
		"wrapped":         {fmt.Errorf("bridge: %w", typed), `called [ADD], error 11 "bridge: busy" "lock of web"`},
		"without details": {fmt.Errorf("ipam: %w", plain), `called [ADD], error 7 "ipam: no subnet" ""`},
		"inside the text": {fmt.Errorf("ipam (%w) and more", typed),
			`called [ADD], error 11 "ipam (busy; lock of web) and more" "lock of web"`},
		"first of two": {errors.Join(plain, typed), `called [ADD], error 7 "no subnet\nbusy; lock of web" ""`},
		"wrapped nil":  {nilInside{}, `called [ADD], error 999 "nothing inside" ""`},
	} {
		got := request{env: environment("ADD"), failure: row.err}.run()
		if got.String() != row.want {
			t.Errorf("%s: %v, want %s", name, got, row.want)
		}
		if name == "typed" && got.err != typed {
			t.Error("a typed error is replaced by another value")
		}
	}
}

// nilInside wraps a nil pointer.
type nilInside struct{}

func (nilInside) Error() string { return "nothing inside" }
func (nilInside) Unwrap() error { return (*types.Error)(nil) }

func TestPanicIsNotCaught(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("the panic of a callback is caught")
		}
	}()
	request{env: environment("ADD"), funcs: CNIFuncs{Add: func(*CmdArgs) error { panic("bug") }}}.run()
}
