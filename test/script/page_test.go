package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// pages lists the documents with examples that run as a reader would type them.
var pages = []string{
	"README.md",
	"docs/getting-started.md",
	"docs/operating.md",
	"docs/cluster.md",
	"docs/migration.md",
	"docs/troubleshooting.md",
}

// TestPages runs the examples of each page in order, each page on a host of its own.
//
// A fenced block "console" contains commands, which begin with "$ ", each followed by its output.
// In the output, "…" stands for any text within a line, and a line "…" for any lines. A command
// without output on the page may print anything, but must succeed. A block with title="PATH" is the
// content of that file. Commands of a block with title="n2" run on a second host, which has files and
// an address of its own; title="PATH on n2" or "PATH on n1 and n2" is a file there.
func TestPages(t *testing.T) {
	t.Parallel()
	require(t)
	testnet.Require(t, testnet.Tool("/usr/lib/cni/bridge"), testnet.Tool("ping"))
	for _, page := range pages {
		t.Run(strings.ReplaceAll(page, "/", "_"), func(t *testing.T) {
			t.Parallel()
			if page == "docs/cluster.md" {
				testnet.Require(t, testnet.Tool("etcd"), testnet.Tool("openssl"))
			}
			run(t, filepath.Join("../..", page))
		})
	}
}

// block is a fenced block of a page.
type block struct {
	line  int // of its first line
	info  string
	lines []string
}

// spaces matches spaces; their number depends on values that the page omits.
var spaces = regexp.MustCompile(" +")

var fileTitle = regexp.MustCompile(`title="([^"]+)"`)

func blocks(page string) (all []block) {
	var current *block
	var indent string
	for i, line := range strings.Split(page, "\n") {
		text := strings.TrimLeft(line, " ")
		fence, isFence := strings.CutPrefix(text, "```")
		switch {
		case isFence && current == nil:
			current = &block{line: i + 2, info: fence}
			indent = line[:len(line)-len(text)]
		case isFence:
			all = append(all, *current)
			current = nil
		case current != nil:
			current.lines = append(current.lines, strings.TrimPrefix(line, indent))
		}
	}
	return all
}

// example is one command of a console block.
type example struct {
	line    int
	command string
	output  []string
}

func (b block) examples() (all []example) {
	for i, line := range b.lines {
		command, isCommand := strings.CutPrefix(line, "$ ")
		last := len(all) - 1
		switch {
		case isCommand:
			all = append(all, example{line: b.line + i, command: command})
		case last >= 0 && strings.HasSuffix(all[last].command, "\\"):
			all[last].command = strings.TrimSuffix(
				all[last].command,
				"\\",
			) + strings.TrimLeft(
				line,
				" >",
			)
		case last >= 0:
			all[last].output = append(all[last].output, line)
		}
	}
	return all
}

// pattern returns the regular expression that the output must match.
func (e example) pattern() string {
	var b strings.Builder
	for _, line := range e.output {
		if strings.TrimSpace(line) == "…" {
			b.WriteString(`(?:.*\n)*`)
			continue
		}
		quoted := strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*")
		b.WriteString(spaces.ReplaceAllString(quoted, " *") + ` *\n`)
	}
	return `^` + b.String() + `$`
}

// runPage runs the examples of a page in the namespaces of this process.
func runPage(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	page := blocks(string(text))
	second, err := secondHost(page)
	if err != nil {
		return err
	}
	defer second.end()
	if err := makeHost(nil); err != nil {
		return err
	}
	for _, b := range page {
		if err := b.write(second); err != nil {
			return err
		}
		if !strings.HasPrefix(b.info, "console") {
			continue
		}
		host := second
		if b.title() != hostTwo {
			host = nil
		}
		for _, e := range b.examples() {
			if err := e.run(host); err != nil {
				return fmt.Errorf("%s:%d: $ %s\n%w", path, e.line, e.command, err)
			}
		}
	}
	return nil
}

// title returns the title of a block, or "".
func (b block) title() string {
	if title := fileTitle.FindStringSubmatch(b.info); title != nil {
		return title[1]
	}
	return ""
}

// write writes the file that a block contains.
func (b block) write(second *host) error {
	name, hosts, onHosts := strings.Cut(b.title(), " on ")
	if !strings.HasPrefix(name, "/") {
		return nil
	}
	if !onHosts {
		hosts = hostOne
	}
	content := []byte(strings.Join(b.lines, "\n") + "\n")
	var errs []error
	for host, root := range map[string]string{hostOne: "", hostTwo: second.root()} {
		if strings.Contains(hosts, host) {
			file := filepath.Join(root, name)
			errs = append(errs, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, 0o644))
		}
	}
	return errors.Join(errs...)
}

// The hosts of a page. Examples with the title hostTwo run on the second one.
const (
	hostOne = "n1"
	hostTwo = "n2"
)

// host is a second host of a page: its first process. It has a network and files of its own, with an
// Ethernet link to the first host.
type host struct{ *exec.Cmd }

// secondHost starts a second host if a page has examples for it.
func secondHost(page []block) (*host, error) {
	if !slices.ContainsFunc(page, func(b block) bool { return b.title() == hostTwo }) {
		return nil, nil
	}
	cmd := exec.Command("unshare", "--mount", "--net", "sh", "-c", `
		set -e
		for dir in /run /opt /var/lib; do mount -t tmpfs -o mode=0755 tenon-script "$dir"; done
		ip link set lo up
		echo ready
		exec sleep infinity`)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	h := &host{cmd}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		return h, fmt.Errorf("the second host has not started: %w", err)
	}
	pid := cmd.Process.Pid
	link := exec.Command("sh", "-c", fmt.Sprintf(`
		set -e
		ip link add eth0 type veth peer name eth0 netns %[1]d
		ip address add 192.168.7.1/24 dev eth0 && ip link set eth0 up
		nsenter -t %[1]d -n ip address add 192.168.7.2/24 dev eth0
		nsenter -t %[1]d -n ip link set eth0 up`, pid))
	if out, err := link.CombinedOutput(); err != nil {
		return h, fmt.Errorf("link between the hosts: %w: %s", err, out)
	}
	return h, makeHost(h)
}

// root returns the root directory of a host, as the first host sees it.
func (h *host) root() string {
	if h == nil {
		return ""
	}
	return fmt.Sprintf("/proc/%d/root", h.Process.Pid)
}

// command returns a command that runs on the host, with the standard output and environment of the
// caller. A nil host is the first one.
func (h *host) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if h == nil {
		return exec.CommandContext(ctx, name, args...)
	}
	enter := []string{"-t", strconv.Itoa(h.Process.Pid), "-m", "-n", "--", name}
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
}

// end ends the host, and with its first process its namespaces.
func (h *host) end() {
	if h != nil {
		_ = h.Process.Kill()
		_ = h.Wait()
	}
}

// patience limits each command of a page.
const patience = 2 * time.Minute

// run runs the command and compares its output. A command that fails prints its exit status last,
// as "exit status N", which the page must show.
func (e example) run(on *host) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := on.command(ctx, "bash", "-c", "cd "+pageDir+" && "+e.command)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	got := string(out)
	if len(e.output) == 0 {
		if err != nil {
			return fmt.Errorf("%w\n%s", err, got)
		}
		return nil
	}
	if got != "" && !strings.HasSuffix(got, "\n") {
		got += "\n"
	}
	if !regexp.MustCompile(e.pattern()).MatchString(got) {
		return fmt.Errorf("printed\n%s\nthe page shows\n%s", got, strings.Join(e.output, "\n"))
	}
	return nil
}

// pageDir is the working directory of a reader: a clone of the repository after "make build".
const pageDir = "/opt/tenon"

// makeHost creates a reader's files: the clone with its binaries, Debian's upstream plugins, a copy
// of /etc, and replacements for commands that this host lacks or that must not affect it.
func makeHost(h *host) error {
	repository, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	bin := os.Getenv(binEnv)
	script := fmt.Sprintf(`
		set -e
		mkdir -p %[1]s /opt/bin /opt/etc
		cp -a /etc/. /opt/etc && mount --bind /opt/etc /etc && rm -rf /etc/cni
		ln -s %[2]s/* %[1]s/ && rm -f %[1]s/bin && ln -s %[3]s %[1]s/bin
		printf '#!/bin/sh\nexec "$@"\n' >/opt/bin/sudo
		printf '#!/bin/sh\nexit 0\n' >/opt/bin/make
		cp %[2]s/test/script/testdata/systemctl %[2]s/test/script/testdata/ssh /opt/bin/
		ln -s ssh /opt/bin/scp
		chmod +x /opt/bin/*
		mkdir -p /opt/local /opt/cni/bin && mount --bind /opt/local /usr/local/bin
		cp /usr/lib/cni/* /opt/cni/bin/`, pageDir, repository, bin)
	if out, err := h.command(context.Background(), "sh", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if h != nil {
		return os.Setenv("N2", strconv.Itoa(h.Process.Pid))
	}
	return os.Setenv("PATH", "/opt/bin:/usr/local/bin:"+os.Getenv("PATH")+":/usr/sbin:/sbin")
}
