package hostdevice_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// ipam is a host-local range with a single free address.
const ipam = `,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.96.0.0/30"}]]}`

// lab creates a host with ens1, whose peer, wire, is in a namespace of its own, and the plugin with
// a configuration.
func lab(t *testing.T, conf string) *plugintest.Runtime {
	t.Helper()
	r := plugintest.NewRuntime(t, suite.Plugin,
		`{"cniVersion":"1.0.0","name":"net","type":"host-device"`+conf+`}`)
	dir := filepath.Join(r.Dir, "devices")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r.Conf["dataDir"] = dir
	plug(r)
	r.Container("c")
	return r
}

// plug creates ens1, up and with addresses.
func plug(r *plugintest.Runtime) {
	r.Host.Batch("link add ens1 address 02:00:5e:00:00:01 type veth peer name wire netns "+
		r.Container("switch").Path(),
		"address add 198.51.100.1/24 brd + dev ens1", "address add fd00:51::1/64 dev ens1",
		"link set ens1 up")
	r.Container("switch").Batch("link set wire up")
}

// link returns the output of ip for a link, nil if the link does not exist.
func link(t *testing.T, ns *plugintest.Namespace, name string) map[string]any {
	t.Helper()
	if ns.Try("ip", "link", "show", name) != nil {
		return nil
	}
	var list []map[string]any
	if err := json.Unmarshal([]byte(ns.Command("ip", "-j", "link", "show", name)),
		&list); err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	return list[0]
}

func isUp(l map[string]any) bool {
	flags, _ := json.Marshal(l["flags"])
	return strings.Contains(string(flags), `"UP"`)
}

// del runs DEL twice, as a runtime may.
func del(t *testing.T, r *plugintest.Runtime, change func(*plugintest.Request)) {
	t.Helper()
	q := r.Request(cni.Del, "c")
	if change != nil {
		change(&q)
	}
	r.Must(q)
	r.Must(q)
}
