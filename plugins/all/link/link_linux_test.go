package link

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/exefile"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// node has a network of bridge, host-local and portmap, a directory with their binaries, and a
// runtime that calls them through [invoke.Linked].
type node struct {
	*testnet.Net
	*network.Client
	t         testing.TB
	network   *config.Network
	plugins   string // directory
	process   invoke.Process
	processes int // started by this process
	stderr    bytes.Buffer
}

func newNode(t testing.TB) *node {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT))
	n := &node{Net: testnet.New(t, "c"), t: t, plugins: t.TempDir()}
	tenon := install(t, build(t, "cmd/tenon"), filepath.Join(n.plugins, "bridge"), 0o755)
	must(n.t, os.Symlink("bridge", filepath.Join(n.plugins, "host-local")))
	must(n.t, os.Link(tenon, filepath.Join(n.plugins, "portmap")))
	n.process = invoke.Process{Stderr: &n.stderr, Environ: func(context.Context) []string {
		n.processes++ // for each process
		return nil
	}}
	n.Client = &network.Client{PluginDirs: []string{n.plugins}, Isolated: true, StateDir: t.TempDir()}
	var err error
	n.network, err = config.LoadBytes(fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": "pods",
		"plugins": [{"type": "bridge", "isDefaultGateway": true, "ipMasq": true,
			"ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.88.0.0/16"}},
		{"type": "portmap", "capabilities": {"portMappings": true}}]}`, t.TempDir()))
	must(n.t, err)
	return n
}

// replace replaces a plugin by a shell script.
func (n *node) replace(plugin, script string) {
	n.t.Helper()
	path := filepath.Join(n.plugins, plugin)
	must(n.t, os.Remove(path))
	must(n.t, exefile.Write(path, []byte("#!/bin/sh\n"+script)))
}

// cycle attaches the container, checks it and detaches it. It returns the result of ADD as text,
// without the MAC addresses, and the number of processes that this process started.
func (n *node) cycle() (result string, processes int) {
	n.t.Helper()
	n.processes = 0
	n.Caller = invoke.Linked(n.process)
	q := network.Request{Container: "c", IfName: "eth0", Parameters: network.Parameters{
		Netns: n.Container("c").Path(), Capabilities: map[string]json.RawMessage{"portMappings": []byte(
			`[{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]`)},
	}}
	var r *cni.Result
	must(n.t, n.Host.Run(func() (err error) {
		if r, err = n.Add(n.t.Context(), n.network, q); err != nil {
			return err
		}
		if err = n.Check(n.t.Context(), q.Attachment("pods"), nil); err != nil {
			return err
		}
		return n.Del(n.t.Context(), q.Attachment("pods"), network.Fallback{})
	}))
	for i := range r.Interfaces {
		r.Interfaces[i].MAC = ""
	}
	text, err := json.MarshalIndent(r, "", " ")
	must(n.t, err)
	return string(text), n.processes
}

// A chain of Tenon's files runs in this process. Foreign files run as processes, delegates too.
// TENON_EXEC=always executes all plugins. The results are equal.
func TestChain(t *testing.T) {
	// Not parallel: it sets an environment variable.
	n := newNode(t)
	want, processes := n.cycle()
	if !strings.Contains(want, "10.88.0.2") || processes != 0 {
		t.Errorf("%d processes, result %s", processes, want)
	}
	clean := testnet.Objects(t, n.Spaces())
	same := func(name string, wantProcesses int, address string) {
		t.Helper()
		got, processes := n.cycle()
		got = strings.ReplaceAll(got, address, "10.88.0.2")
		if after := testnet.Objects(t, n.Spaces()); after != clean {
			t.Errorf("%s left:\n%s", name, testnet.Diff(clean, after))
		}
		if diff := cmp.Diff(want, got); processes != wantProcesses || diff != "" {
			t.Errorf("%s: %d processes, want %d; result (-want +got)\n%s", name, processes,
				wantProcesses, diff)
		}
	}
	same("again", 0, "10.88.0.3")
	t.Setenv("TENON_EXEC", "always")
	same("TENON_EXEC=always", 6, "10.88.0.4")
	t.Setenv("TENON_EXEC", "")

	n.replace("host-local", `echo host-local $CNI_COMMAND >&2
ip='"address":"10.88.0.2/16","gateway":"10.88.0.1"'
[ $CNI_COMMAND = ADD ] && echo '{"cniVersion":"1.1.0","ips":[{'$ip'}]}'
exit 0`)
	n.stderr.Reset()
	same("a foreign delegate", 3, "10.88.0.2")
	if got := n.stderr.String(); got != "host-local ADD\nhost-local CHECK\nhost-local DEL\n" {
		t.Errorf("standard error: %q", got)
	}
	n.replace("portmap", `echo '{"code": 100, "msg": "foreign"}'
exit 1`)
	err := n.Host.Run(func() error {
		_, err := n.Add(t.Context(), n.network, network.Request{Container: "c", IfName: "eth0",
			Parameters: network.Parameters{Netns: n.Container("c").Path()}})
		return err
	})
	var failed *invoke.Error
	if !errors.As(err, &failed) || failed.Plugin != "portmap" || cni.CodeOf(err) != 100 {
		t.Errorf("a foreign portmap: %v", err)
	}
}

// A plugin in this process and a plugin process return equal errors and equal replies to VERSION.
func TestSameOutput(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"dhcp", "alias"} {
		must(t, os.Symlink("bridge", filepath.Join(n.plugins, name)))
	}
	for _, name := range []string{"cnv-bridge", "tenon"} {
		must(t, os.Link(filepath.Join(n.plugins, "bridge"), filepath.Join(n.plugins, name)))
	}
	absent := filepath.Join(t.TempDir(), "socket")
	for name, c := range map[string]invoke.Call{
		"bridge, an invalid configuration": {Env: cni.Env{Command: cni.Add, ContainerID: "c",
			IfName: "eth0", Netns: n.Container("c").Path(), Path: n.plugins},
			Stdin: []byte(`{"cniVersion":"1.1.0","name":"x","type":"bridge","mtu":"a"}`)},
		"bridge, VERSION": {Env: cni.Env{Command: cni.VersionCommand},
			Stdin: []byte(`{"cniVersion":"1.0.0"}`)},
		"bridge, no verb":           {},
		"alias, which links to one": {Env: cni.Env{Command: cni.VersionCommand}},
		"cnv-bridge, DEL": {Env: cni.Env{Command: cni.Del, ContainerID: "c", IfName: "eth0"},
			Stdin: []byte(`{"cniVersion":"1.1.0","name":"x","type":"cnv-bridge","mtu":"a"}`)},
		"tenon, by its type": {Env: cni.Env{Command: cni.Check, ContainerID: "c", IfName: "eth0",
			Netns: n.Container("c").Path()},
			Stdin: []byte(`{"cniVersion":"1.1.0","name":"x","type":"bridge"}`)},
		"dhcp, no daemon": {Env: cni.Env{Command: cni.Status, Path: n.plugins},
			Stdin: fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"x","type":"macvlan",
				"ipam":{"type":"dhcp","daemonSocketPath":%q}}`, absent)},
		"tenon, which is not a plugin": {Env: cni.Env{Command: cni.Status}},
	} {
		plugin, situation, _ := strings.Cut(name, ", ")
		wantProcesses := 0
		if situation == "no verb" || situation == "which is not a plugin" {
			wantProcesses = 1
		}
		c.Path = filepath.Join(n.plugins, plugin)
		call := func() (out string) {
			n.processes = 0
			must(n.t, n.Host.Run(func() error {
				reply, err := invoke.Linked(n.process).Call(t.Context(), c)
				out = fmt.Sprintf("%s\n%v", reply.Stdout, err)
				if e := (*invoke.Error)(nil); errors.As(err, &e) {
					out += fmt.Sprintf("\n%d %s\n%s", e.Err.Code, e.Status, e.Stdout)
				}
				return nil
			}))
			return out
		}
		inProcess := call()
		if n.processes != wantProcesses {
			t.Errorf("%s: %d processes, want %d", name, n.processes, wantProcesses)
		}
		t.Setenv("TENON_EXEC", "always")
		if diff := cmp.Diff(call(), inProcess); diff != "" || n.processes != 1 {
			t.Errorf("%s: %d processes (-process +in this process):\n%s", name, n.processes, diff)
		}
		t.Setenv("TENON_EXEC", "")
	}
}
