//go:build programs

package interop

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestProgramGoCNI: the example of go-cni's manual prints the same with both libraries, with each
// set of plugins, and with Tenon's plugins in its process. It attaches and detaches; if a plugin
// fails, Tenon's library rolls back.
func TestProgramGoCNI(t *testing.T) {
	t.Parallel()
	withPlugins(t, func(t *testing.T, install func(*node)) {
		logs := map[library]string{}
		for _, built := range []library{original, compat} {
			logs[built] = goCNI(t, built, install)
		}
		sameAs(t, logs[original], logs[compat])
		sameAs(t, logs[original], goCNI(t, linked, install))
	})
}

// goCNI runs the example without a network, with one, and with one that has a failing plugin. It
// returns the output without the messages of that plugin, which only Tenon's library forwards.
func goCNI(t *testing.T, built library, install func(*node)) (log string) {
	t.Helper()
	n := newNode(t)
	install(n)
	n.installNote()
	n.privateEtc()
	n.run("ip", "netns", "add", "example-ns-1") // the example's name
	run := func() {
		out, err := n.command(filepath.Join(built.dir(t, "go-cni"), "go-cni")).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, "note: ") {
				log += line
			}
		}
		if err != nil {
			log += err.Error()
		}
		log += "\n"
	}
	configure := func(network string) { n.write("/etc/cni/net.d/10-pods.conflist", network) }
	run()
	configure(podsConf)
	run() // leaves the shared objects
	before := n.snapshot()
	run()
	n.unchanged(before)
	configure(withNote(podsConf))
	n.write(noteDir+"/refuse", "")
	run()
	if built != original { // Tenon's library rolls back
		n.unchanged(before)
		if left := n.files("/var/lib/cni/networks/pods/1*"); left != nil {
			t.Errorf("reserved addresses: %q", left)
		}
	}
	return log
}

// TestProgramGoCNITests: the tests of go-cni itself pass. They use mocks of the library's
// interfaces.
func TestProgramGoCNITests(t *testing.T) {
	t.Parallel()
	for _, built := range []library{original, compat} {
		n := newNode(t)
		cmd := n.command(filepath.Join(built.dir(t, "go-cni"), "go-cni.test"), "-test.v")
		cmd.Dir = t.TempDir()
		out, err := output(cmd)
		if err != nil {
			t.Errorf("with the library of %s: %v", built, err)
		}
		t.Logf("with the library of %s, %d tests pass", built, strings.Count(out, "--- PASS: "))
	}
}
