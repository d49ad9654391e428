package plugin

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/journal"
)

// TestJournal writes what other runtimes do to a journal that exists, without arguments.
func TestJournal(t *testing.T) {
	t.Parallel()
	const (
		result = `{"cniVersion":"1.0.0","interfaces":[{"name":"cni0"},{"name":"eth0","mac":"02:00:00:00:00:02",
"sandbox":"/run/netns/web"}],"ips":[{"interface":1,"address":"10.77.0.2/24"}]}`
		request = `{"cniVersion":"1.0.0","name":"pods","token":"hunter2","runtimeConfig":{"portMappings":[
{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]},"prevResult":` + result + `}`
		gc = `{"cniVersion":"1.1.0","name":"pods","cni.dev/valid-attachments":[]}`
	)
	dir := t.TempDir()
	d := Definition{Info: Info{Name: "bridge"}}
	env := cni.Env{ContainerID: "web", IfName: "eth0", Netns: "/run/netns/web", Args: "TOKEN=hunter2"}
	for _, call := range []struct {
		verb       cni.Command
		stdin, out string
		err        error
	}{
		{cni.Add, request, result, nil},
		{cni.Status, request, "", nil},
		{cni.VersionCommand, request, "", nil},
		{cni.Add, request, "", cni.Errorf(cni.CodeTryAgainLater, `pool of "hunter2" is full`)},
		{cni.Del, request, "", nil},
		{cni.GC, gc, "", nil},
		{cni.Del, "{", "", nil},
	} {
		env := env
		env.Command = call.verb
		for _, dir := range []string{dir, journal.Off, filepath.Join(dir, "absent")} {
			d.journal(dir, env, []byte(call.stdin))([]byte(call.out), call.err)
		}
	}
	base := journal.Record{
		Version: 1, Kind: journal.Plugin, Network: "pods", Container: "web", IfName: "eth0",
		Netns: "/run/netns/web", Plugins: []journal.Call{{Type: "bridge"}}, PID: os.Getpid(),
	}
	add, failed, del, collect, bad := base, base, base, base, base
	add.Verb, failed.Verb, del.Verb, collect.Verb, bad.Verb = cni.Add, cni.Add, cni.Del, cni.GC, cni.Del
	add.Ports = []journal.Port{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}}
	failed.Ports = add.Ports
	add.Addresses = []netip.Addr{netip.MustParseAddr("10.77.0.2")}
	add.Interfaces = []journal.Interface{{Name: "cni0"}, {Name: "eth0", MAC: "02:00:00:00:00:02", Container: true}}
	del.Ports, del.Addresses, del.Interfaces = add.Ports, add.Addresses, add.Interfaces
	failed.Code, failed.Error = cni.CodeTryAgainLater, `pool of "…" is full`
	failed.Plugins = []journal.Call{{Type: "bridge", Code: cni.CodeTryAgainLater}}
	collect.Keep = []string{}
	bad.Network = ""
	c, err := journal.Journal{Dir: dir}.Read()
	if err != nil || c.Damaged != 0 {
		t.Fatal(c.Damaged, err)
	}
	for _, r := range c.Records {
		if r.Runtime == "" || r.Uptime == 0 || len(r.Boot) != 36 || r.Time.IsZero() || r.Duration == 0 {
			t.Errorf("not complete: %+v", r)
		}
	}
	if diff := cmp.Diff([]journal.Record{add, failed, del, collect, bad}, c.Records,
		cmpopts.IgnoreFields(journal.Record{}, "Time", "Boot", "Uptime", "Duration", "Runtime"),
		cmpopts.IgnoreFields(journal.Call{}, "Duration"),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
