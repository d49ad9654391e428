package config_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// quiet discards log lines.
var quiet = slog.New(slog.DiscardHandler)

// describe formats an error with its code.
func describe(err error) string {
	if err == nil {
		return "success"
	}
	return fmt.Sprintf("%d %v", cni.CodeOf(err), err)
}

// list returns a network with the given plugin types or plugin objects.
func list(t *testing.T, version, name string, plugins ...string) *config.Network {
	t.Helper()
	for i, p := range plugins {
		if !strings.HasPrefix(p, "{") {
			plugins[i] = `{"type":"` + p + `"}`
		}
	}
	n, err := config.LoadBytes(fmt.Appendf(nil, `{"cniVersion":%q,"name":%q,"plugins":[%s]}`,
		version, name, strings.Join(plugins, ",")))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// discover returns the content of a configuration directory.
func discover(t *testing.T, dir string) *config.Catalog {
	t.Helper()
	c, err := config.Discover(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func request(container string) network.Request {
	return network.Request{Container: container, IfName: "eth0",
		Parameters: network.Parameters{Netns: "/run/netns/absent"}}
}

// normal returns JSON in a comparable form, with sorted keys and exact numbers.
func normal(t *testing.T, b []byte) string {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
