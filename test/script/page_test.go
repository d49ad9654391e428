package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
// content of that file.
func TestPages(t *testing.T) {
	t.Parallel()
	require(t)
	testnet.Require(t, testnet.Tool("/usr/lib/cni/bridge"), testnet.Tool("ping"))
	for _, page := range pages {
		t.Run(strings.ReplaceAll(page, "/", "_"), func(t *testing.T) {
			t.Parallel()
			if processes(page) != 0 {
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
	if err := makeHost(); err != nil {
		return err
	}
	for _, b := range blocks(string(text)) {
		if name := fileTitle.FindStringSubmatch(b.info); name != nil {
			content := []byte(strings.Join(b.lines, "\n") + "\n")
			if err := errors.Join(os.MkdirAll(filepath.Dir(name[1]), 0o755), os.WriteFile(name[1], content, 0o644)); err != nil {
				return err
			}
		}
		if b.info != "console" {
			continue
		}
		for _, e := range b.examples() {
			if err := e.run(); err != nil {
				return fmt.Errorf("%s:%d: $ %s\n%w", path, e.line, e.command, err)
			}
		}
	}
	return nil
}

// patience limits each command of a page.
const patience = 2 * time.Minute

// run runs the command and compares its output. A command that fails prints its exit status last,
// as "exit status N", which the page must show.
func (e example) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", e.command)
	cmd.WaitDelay = time.Second
	cmd.Dir = pageDir
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
func makeHost() error {
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
		cp testdata/systemctl /opt/bin/
		chmod +x /opt/bin/*
		mkdir -p /opt/local /opt/cni/bin && mount --bind /opt/local /usr/local/bin
		cp /usr/lib/cni/* /opt/cni/bin/`, pageDir, repository, bin)
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return os.Setenv("PATH", "/opt/bin:/usr/local/bin:"+os.Getenv("PATH")+":/usr/sbin:/sbin")
}
