package cni_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
)

var fullEnv = cni.Env{
	Command: cni.Add, ContainerID: "c1", Netns: "/run/netns/c1", IfName: "eth0",
	Args: "IP=10.0.0.2;IgnoreUnknown=1",
	Path: "/opt/cni/bin:/usr/lib/cni", NetnsOverride: "TRUE",
}

func TestEnvironRoundTrip(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]cni.Env{"full": fullEnv, "empty": {}} {
		vars := map[string]string{}
		for _, v := range e.Environ() {
			key, value, ok := strings.Cut(v, "=")
			if _, twice := vars[key]; !ok || twice {
				t.Errorf("%s: variable %q", name, v)
			}
			vars[key] = value
		}
		if back := cni.EnvFrom(func(key string) string { return vars[key] }); back != e {
			t.Errorf("%s: %+v was decoded as %+v", name, e, back)
		}
	}
}

// Environ sets empty variables, too, so that no variable of the runtime leaks (ENV-12).
// ENV-17, ENV-18, DIS-04, DIS-18: Environ returns exactly these variables.
func TestEnvironSetsAll(t *testing.T) {
	t.Parallel()
	want := []string{"CNI_COMMAND=GC", "CNI_CONTAINERID=", "CNI_NETNS=", "CNI_IFNAME=", "CNI_ARGS=",
		"CNI_PATH=/b"}
	if diff := cmp.Diff(want, cni.Env{Command: cni.GC, Path: "/b"}.Environ()); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

// ENV-01, ENV-03, ENV-04, ENV-07, DIS-23, DIS-31
func TestEnvValidate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(e *cni.Env)
		want   []string // parts of the message; nil if valid
	}{
		"ADD":        {func(*cni.Env) {}, nil},
		"no command": {func(e *cni.Env) { e.Command = "" }, []string{"CNI_COMMAND"}},
		"unknown command": {func(e *cni.Env) { e.Command = "GET" },
			[]string{"CNI_COMMAND", "GET"}},
		"command in lower case": {func(e *cni.Env) { e.Command = "add" },
			[]string{"CNI_COMMAND"}},
		"no path without delegate": {func(e *cni.Env) { e.Path = "" }, nil},
		"ADD lacks all": {
			func(e *cni.Env) { e.ContainerID, e.Netns, e.IfName = "", "", "" },
			[]string{"CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME"},
		},
		"CHECK lacks all": {
			func(e *cni.Env) { *e = cni.Env{Command: cni.Check} },
			[]string{"CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME"},
		},
		"DEL lacks all":                         {func(e *cni.Env) { *e = cni.Env{Command: cni.Del} }, []string{": CNI_CONTAINERID, CNI_IFNAME"}},
		"DEL without a namespace":               {func(e *cni.Env) { e.Command, e.Netns = cni.Del, "" }, nil},
		"invalid takes precedence over missing": {func(e *cni.Env) { e.ContainerID, e.IfName = "", "a/b" }, []string{"CNI_IFNAME", "a/b"}},
		"invalid ID": {func(e *cni.Env) { e.ContainerID = "../x" },
			[]string{"CNI_CONTAINERID"}},
		"NUL in the namespace": {func(e *cni.Env) { e.Netns = "/run\x00" },
			[]string{"CNI_NETNS"}},
		"NUL in the namespace of a DEL": {func(e *cni.Env) { e.Command, e.Netns = cni.Del, "\x00" }, []string{"CNI_NETNS"}},
		"GC requires nothing": {func(e *cni.Env) { *e = cni.Env{Command: cni.GC} },
			nil},
		"STATUS requires nothing":             {func(e *cni.Env) { *e = cni.Env{Command: cni.Status} }, nil},
		"VERSION requires nothing":            {func(e *cni.Env) { *e = cni.Env{Command: cni.VersionCommand} }, nil},
		"GC ignores an attachment's (ENV-08)": {func(e *cni.Env) { *e = cni.Env{Command: cni.GC, ContainerID: "-bad"} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fullEnv
			test.change(&e)
			err := e.Validate()
			if test.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if cni.CodeOf(err) != cni.CodeInvalidEnvironment {
				t.Fatalf("code %d: %v", cni.CodeOf(err), err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not name %q", err, part)
				}
			}
		})
	}
}

func TestEnvAccessors(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff([]string{"/a", "/b"}, cni.Env{Path: ":/a::/b:"}.Paths()); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	if paths := (cni.Env{}).Paths(); len(paths) != 0 {
		t.Errorf("no path is %q", paths)
	}
	want := cni.Attachment{Network: "n", Container: "c1", IfName: "eth0"}
	if got := fullEnv.Attachment("n"); got != want {
		t.Errorf("attachment %v", got)
	}
	for value, allowed := range map[string]bool{"1": true, "true": true, "True": true, "": false,
		"0": false, "yes": false} {
		if got := (cni.Env{NetnsOverride: value}).OwnNetnsAllowed(); got != allowed {
			t.Errorf("CNI_NETNS_OVERRIDE=%q: %v", value, got)
		}
	}
}

// CONV-23: the last of equal keys counts, keys are case-sensitive, values may be empty.
func TestArgs(t *testing.T) {
	t.Parallel()
	const text = "A=1;IP=10.0.0.2;A=2;K8S_POD_NAME="
	args, err := cni.ParseArgs(text)
	if err != nil {
		t.Fatal(err)
	}
	want := cni.Args{{Key: "A", Value: "1"}, {Key: "IP", Value: "10.0.0.2"}, {Key: "A", Value: "2"},
		{Key: "K8S_POD_NAME"}}
	if diff := cmp.Diff(want, args); diff != "" {
		t.Errorf("pairs (-want +got):\n%s", diff)
	}
	if args.String() != text {
		t.Errorf("text %q", args)
	}
	for key, want := range map[string]string{"A": "2", "K8S_POD_NAME": "", "IP": "10.0.0.2"} {
		if got, ok := args.Get(key); got != want || !ok {
			t.Errorf("%s is %q, %v", key, got, ok)
		}
	}
	if got, ok := args.Get("ip"); ok {
		t.Errorf("ip is %q", got)
	}
}

func TestArgsCheckKnownNamesAll(t *testing.T) {
	t.Parallel()
	err := cni.Args{{Key: "A"}, {Key: "IP"}, {Key: "B"}}.CheckKnown("IP")
	if cni.CodeOf(err) != cni.CodeInvalidEnvironment ||
		!strings.Contains(err.Error(), `["A" "B"]`) {
		t.Error(err)
	}
}
