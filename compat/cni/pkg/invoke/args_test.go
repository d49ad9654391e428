//go:build unix

package invoke_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/invoke"
)

// cniVariables are the variables that Args sets.
var cniVariables = []string{"CNI_ARGS", "CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS",
	"CNI_PATH"}

func TestArgsAsEnv(t *testing.T) {
	for _, name := range cniVariables {
		t.Setenv(name, "old")
	}
	t.Setenv("CNI_OTHER", "kept")
	before := os.Environ()
	for _, row := range []struct {
		name string
		args invoke.Args
		want []string
	}{
		{"all values", invoke.Args{Command: "ADD", ContainerID: "c", NetNS: "/n", IfName: "eth0",
			Path: "/a:/b", PluginArgs: [][2]string{{"A", "1"}, {"B", "x=y;z"}}},
			[]string{"CNI_ARGS=A=1;B=x=y;z", "CNI_COMMAND=ADD", "CNI_CONTAINERID=c",
				"CNI_IFNAME=eth0", "CNI_NETNS=/n", "CNI_OTHER=kept", "CNI_PATH=/a:/b"}},
		{"empty values hide values of the process", invoke.Args{},
			[]string{"CNI_ARGS=", "CNI_COMMAND=", "CNI_CONTAINERID=", "CNI_IFNAME=", "CNI_NETNS=",
				"CNI_OTHER=kept", "CNI_PATH="}},
		{"text precedes pairs", invoke.Args{PluginArgsStr: "C=3", PluginArgs: [][2]string{{"A", "1"}}},
			[]string{"CNI_ARGS=C=3", "CNI_COMMAND=", "CNI_CONTAINERID=", "CNI_IFNAME=",
				"CNI_NETNS=", "CNI_OTHER=kept", "CNI_PATH="}},
	} {
		env := row.args.AsEnv()
		wantEqual(t, row.name, variables(env, "CNI_"), row.want)
		if len(env) != len(before) {
			t.Errorf("%s: %d variables, want %d", row.name, len(env), len(before))
		}
	}
	if !slices.Equal(before, os.Environ()) {
		t.Error("the environment of this process has changed")
	}
}

// variables returns the sorted entries of an environment with a prefix.
func variables(env []string, prefix string) []string {
	env = slices.DeleteFunc(slices.Clone(env),
		func(entry string) bool { return !strings.HasPrefix(entry, prefix) })
	slices.Sort(env)
	return env
}

func TestDelegateArgsAsEnv(t *testing.T) {
	t.Setenv("CNI_NETNS", "/n")
	for _, own := range []string{"ADD", ""} { // the variable is replaced, or added
		t.Setenv("CNI_COMMAND", own)
		want := len(os.Environ())
		if own == "" {
			os.Unsetenv("CNI_COMMAND")
		}
		env := (&invoke.DelegateArgs{Command: "DEL"}).AsEnv()
		wantEqual(t, "variables", variables(env, "CNI_"), []string{"CNI_COMMAND=DEL", "CNI_NETNS=/n"})
		if len(env) != want {
			t.Errorf("%d variables, want %d", len(env), want)
		}
	}
}

func TestArgsFromEnv(t *testing.T) {
	t.Parallel()
	if env := invoke.ArgsFromEnv().AsEnv(); env != nil {
		t.Errorf("%q, want nil", env)
	}
}
