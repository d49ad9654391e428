package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/plugindir"
	"github.com/tenon-cni/tenon/network"
)

// answers writes a plugin that supports certain versions.
func answers(t *testing.T, path string, versions ...string) {
	t.Helper()
	write(t, path, "#!/bin/sh\necho '{\"cniVersion\":\""+versions[0]+"\",\"supportedVersions\":[\""+
		strings.Join(versions, `","`)+"\"]}'\n")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestUnsupported asks the plugins that remain: restored files, diverted files, and files that the
// removal does not touch, but neither Tenon's own plugins nor files that are no plugins.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"bridge", "portmap", "vrf"} {
		answers(t, path(name), "1.1.0") // Tenon's
	}
	answers(t, plugindir.Kept(path("bridge")), "0.4.0", "1.0.0")
	answers(t, path("portmap.distrib"), "0.4.0", "1.0.0", "1.1.0")
	answers(t, path("host-local"), "0.4.0")
	write(t, path("tuning"), "no plugin")
	attached := func(name string, v cni.Version, outcome Outcome, types ...string) Attachment {
		list := &cni.List{Name: name, Version: v}
		for _, typ := range types {
			list.Append(&cni.PluginConfig{Type: typ})
		}
		list.Plugins[0].IPAM = "host-local"
		return Attachment{Outcome: outcome, Attachment: inspect.Attachment{Record: network.Record{
			Attachment: cni.Attachment{Network: name, Container: "web", IfName: "eth0"}, List: list}}}
	}
	unused, own := t.TempDir(), t.TempDir()
	for _, dir := range []string{unused, own} {
		answers(t, filepath.Join(dir, "bridge"), "0.3.0")
	}
	p := &Plan{dirs: []string{dir, path("missing"), unused, own}, Plugins: []string{path("bridge"), path("vrf")},
		Links: []string{path("portmap")}, Attachments: []Attachment{
			attached("pods", cni.V110, HandOver, "bridge", "portmap", "tuning", "vrf"),
			attached("more", cni.V110, Blocks, "bridge"),
			attached("old", cni.V040, HandOver, "bridge"),
			attached("detached", cni.V100, Detach, "bridge"),
			attached("foreign", cni.V100, Keep, "bridge"),
		}}
	p.request.Client = &network.Client{PluginDirs: []string{own}}
	p.unsupported(t.Context())
	want := []Unsupported{{Dir: dir, Plugins: []string{"bridge", "host-local"}, Version: cni.V110,
		Networks: []string{"pods", "more"}}}
	if diff := cmp.Diff(want, p.Unsupported); diff != "" {
		t.Error(diff)
	}
	p.Attachments[0].Own, p.Attachments = true, p.Attachments[:1]
	p.Unsupported = nil
	p.unsupported(t.Context())
	want[0].Networks = []string{"pods"}
	want = append(want, Unsupported{Dir: own, Plugins: []string{"bridge"}, Version: cni.V110,
		Networks: []string{"pods"}})
	if diff := cmp.Diff(want, p.Unsupported); diff != "" {
		t.Errorf("with an attachment of the client's runtime: %s", diff)
	}
}
