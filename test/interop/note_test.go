package interop

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// The plugin of testdata/note keeps its files in noteDir; a network names it at the end of its
// plugins.
const (
	noteDir  = "/run/note"
	noteConf = `,{"type":"note","dir":"` + noteDir + `","capabilities":{"portMappings":true,"bandwidth":true,"dns":true,"ipRanges":true,"io.kubernetes.cri.pod-annotations":true}}`
)

// installNote installs the plugin of testdata/note.
func (n *node) installNote() {
	n.t.Helper()
	testnet.Require(n.t, testnet.Tool("jq"))
	n.installScript("note")
	must(n.t, os.Mkdir(n.path(noteDir), 0o755))
}

// installScript installs a plugin of testdata.
func (n *node) installScript(name string) {
	n.t.Helper()
	script, err := os.ReadFile("testdata/" + name)
	must(n.t, err)
	n.write(plugins+"/"+name, string(script))
	must(n.t, os.Chmod(n.path(plugins+"/"+name), 0o755))
}

// TestShellPlugin: a plugin that is a shell script, added by a drop-in file after Tenon's plugins:
// all verbs, its messages on standard error, and its errors.
func TestShellPlugin(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	l := newLab(t, plugins)
	l.installNote()
	l.write(podNetwork, `{"cniVersion":"1.1.0","name":"pods","plugins":[
		{"type":"bridge","bridge":"cni0","isGateway":true,"ipam":{"type":"host-local","subnet":"10.85.0.0/16"}}]}`)
	l.write(netDir+"/pods/10-note.conf", strings.TrimPrefix(noteConf, ","))
	l.container("web")
	l.container("other")
	l.must("add", "pods", "web", "--id", "web")
	l.must("del", "pods", "web", "--id", "web") // leaves the shared objects
	before := l.snapshot()

	l.write(noteDir+"/refuse", "")
	l.refused(123, "no more notes", "add", "pods", "web", "--id", "web")
	l.unchanged(before)
	if out, err := l.tenon("status", "pods", "--json"); err == nil || !strings.Contains(out, `"code": 50,`) || !strings.Contains(out, "no more notes") {
		t.Errorf("status: %v\n%s, want code 50", err, out)
	}
	l.run("rm", noteDir+"/refuse")
	l.must("status", "pods")

	if out := l.must("add", "pods", "web", "--id", "web"); !strings.Contains(out, "note: ADD of web") {
		t.Errorf("the messages of the plugin are missing: %s", out)
	}
	l.must("add", "pods", "other", "--id", "other")
	l.must("check", "pods", "web", "--id", "web")
	l.run("rm", noteDir+"/note-web-eth0")
	l.refused(124, "no note of web", "check", "pods", "web", "--id", "web")
	l.write(noteDir+"/note-gone-eth0", "")
	l.must("gc", "pods", "--keep-recorded")
	if notes := l.files(noteDir + "/note-*"); len(notes) != 1 || notes[0] != "note-other-eth0" {
		t.Errorf("after GC there are %q", notes)
	}
	l.must("del", "pods", "web", "--id", "web")
	l.must("del", "pods", "other", "--id", "other")
	if notes := l.files(noteDir + "/note-*"); notes != nil {
		t.Errorf("after DEL there are %q", notes)
	}
	l.unchanged(before)
}

// refused runs a command that must fail with an error of the plugin.
func (l *lab) refused(code int, message string, args ...string) {
	l.t.Helper()
	out, err := l.tenon(append(args, "--json")...)
	var failure struct {
		Code int
		Msg  string
	}
	_, text, _ := strings.Cut(out, "{")
	if wrong := json.Unmarshal([]byte("{"+text), &failure); err == nil || wrong != nil || failure.Code != code || !strings.Contains(failure.Msg, message) {
		l.t.Errorf("%s: %v\n%s, want code %d and %q", strings.Join(args, " "), err, out, code, message)
	}
}
