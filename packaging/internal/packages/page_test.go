//go:build packages

package packages_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// commands returns the commands of the shell below a heading of docs/install.md, for each block.
func commands(t *testing.T, heading string) (blocks [][]string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "install.md"))
	must(t, err)
	_, section, found := strings.Cut(string(page), "\n"+heading+"\n")
	if !found {
		t.Fatalf("docs/install.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, part := range strings.Split(section, "\n```sh\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```")
		blocks = append(blocks, strings.Split(block, "\n"))
	}
	return blocks
}

// TestPage runs the commands of docs/install.md as they are on the page: at most four until the
// container reaches its gateway, within a minute. The commands that undo them leave the machine as
// before.
func TestPage(t *testing.T) {
	t.Parallel()
	blocks := commands(t, "## Four commands to a container")
	if len(blocks) != 3 || len(blocks[0]) > 4 || len(blocks[1]) != 1 {
		t.Fatalf("%q", blocks)
	}
	install, ping, undo := blocks[0], blocks[1], blocks[2]
	offline := commands(t, "### Without access to the internet")[0]
	file := strings.NewReplacer("VERSION", older, "ARCH", runtime.GOARCH)
	for _, way := range []struct {
		name, prepare string
		first, last   string // commands in place of the package manager's
	}{
		{"package", "cd /root", file.Replace(install[0]), undo[len(undo)-1]},
		{"install script", "mkdir /media/tenon; mv /root/release-*/* /media/tenon; cd /media/tenon",
			offline[0], "sudo tenon uninstall"},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.state()
			m.give(packageFile(t, older, "deb"))
			m.release(older)
			where := way.prepare
			m.run(where)
			where = where[strings.LastIndex(where, "cd "):]
			start := time.Now()
			for _, line := range append([]string{way.first}, append(install[1:], ping...)...) {
				m.run(where + "; sudo() { \"$@\"; }\n" + line)
			}
			took := time.Since(start)
			t.Logf("%d commands and a ping: %.1f s", len(install), took.Seconds())
			if took > time.Minute {
				t.Errorf("more than a minute: %v", took)
			}
			for _, line := range append(undo[:len(undo)-1:len(undo)-1], way.last) {
				m.run("sudo() { echo y | \"$@\"; }\n" + line)
			}
			m.run("rm -rf /media/tenon")
			m.unchanged(before)
		})
	}
}
