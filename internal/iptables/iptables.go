// Package iptables changes the tables of iptables and ip6tables by their own tools, for
// configurations that ask for them: it is the only package that starts iptables-restore, and
// iptables-save where there may be rules already. iptables comes in two kinds, which see nothing of
// each other: the newer one keeps its rules in nftables, where package nft can read and remove
// them, the legacy one in tables of its own. Which of them is installed does not matter here.
package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tenon-cni/tenon/internal/netns"
)

// ErrNoTool says that iptables is not installed, or not in PATH.
var ErrNoTool = errors.New("iptables is not installed")

// Family is IPv4 or IPv6.
type Family int

// The families.
const (
	IPv4 Family = iota
	IPv6
)

// Available returns nil if the tools of some families are there, or without any those of both, else an error that wraps
// [ErrNoTool]. It starts nothing.
func Available(families ...Family) error {
	if len(families) == 0 {
		families = []Family{IPv4, IPv6}
	}
	for _, f := range families {
		if _, err := exec.LookPath(f.commands().restore); err != nil {
			return fmt.Errorf("%w: %w", ErrNoTool, err)
		}
	}
	return nil
}

// LegacyAvailable returns nil if a tool of the legacy kind is installed for a family, under its own
// name or as the default. It starts a process.
func LegacyAvailable(ctx context.Context, ns *netns.NS, f Family) error {
	tool := f.legacyCommands().restore
	version, err := run(ctx, ns, "", tool, "--version")
	if err == nil && bytes.Contains(version, []byte("nf_tables")) {
		return fmt.Errorf("%s is of the nftables variant, and the legacy variant is not installed", tool)
	}
	return err
}

// HasLegacy reports whether a namespace has a table of the legacy kind.
func (t Table) HasLegacy(ns *netns.NS) (bool, error) {
	path := [...]string{"/proc/thread-self/net/ip_tables_names", "/proc/thread-self/net/ip6_tables_names"}[t.Family]
	var names string
	read := func() (err error) {
		names, err = netns.ReadFile(path)
		return err
	}
	var err error
	if ns.Here() { // as it is in a plugin, whose host this is: a thread of its own would cost 0.3 ms
		err = read()
	} else {
		err = ns.Run(read)
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) { // the kernel has none, or none for this user
		return false, nil
	}
	return slices.Contains(strings.Fields(names), t.Name), err
}

// commands are the two programs of one kind of iptables.
type commands struct{ save, restore string }

func (f Family) commands() commands {
	return [...]commands{{"iptables-save", "iptables-restore"}, {"ip6tables-save", "ip6tables-restore"}}[f]
}

// legacyCommands are those of the legacy kind, which is not always the default one.
func (f Family) legacyCommands() commands {
	legacy := [...]commands{{"iptables-legacy-save", "iptables-legacy-restore"}, {"ip6tables-legacy-save", "ip6tables-legacy-restore"}}[f]
	if inPath(legacy.save) && inPath(legacy.restore) {
		return legacy
	}
	return f.commands()
}

func inPath(tool string) bool {
	_, err := exec.LookPath(tool)
	return err == nil
}

// saved returns the lines that describe a table. They are what restore takes.
func (c commands) saved(ctx context.Context, ns *netns.NS, table string) ([]string, error) {
	out, err := run(ctx, ns, "", c.save, "-t", table)
	return strings.Split(string(out), "\n"), err
}

// apply makes all changes to a table, or none.
func (c commands) apply(ctx context.Context, ns *netns.NS, table string, changes []string) error {
	lines := slices.Concat([]string{"*" + table}, changes, []string{"COMMIT", ""})
	_, err := run(ctx, ns, strings.Join(lines, "\n"), c.restore, "--noflush", patience(ctx))
	return err
}

// patience is the option that has a tool of the legacy kind wait for others, for whole seconds within the deadline: then
// it can say for what it has waited. Without a deadline that is better than to wait until somebody loses patience.
func patience(ctx context.Context) string {
	wait := 30 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	return fmt.Sprintf("--wait=%d", max(1, int(wait.Seconds())))
}

// failure is what went wrong in a tool, and what it says about that.
type failure struct {
	tool string
	err  error
	text string
}

func (f *failure) Error() string {
	text := f.tool + ": " + f.err.Error()
	if f.text != "" {
		text += ": " + f.text
	}
	return text
}

// Unwrap returns the error and what it amounts to: [syscall.EINTR] if a signal ended the tool, [syscall.EIO] if the tool
// reported a failure, which the kernel or the rules caused.
func (f *failure) Unwrap() []error {
	var exit *exec.ExitError
	switch {
	case !errors.As(f.err, &exit):
		return []error{f.err}
	case exit.Exited():
		return []error{f.err, syscall.EIO}
	}
	return []error{f.err, syscall.EINTR}
}

func run(ctx context.Context, ns *netns.NS, input, name string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	err := ns.Run(func() error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
		// Nothing may change after this process has died: then DEL is on its way.
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return cmd.Run()
	})
	switch {
	case err == nil:
		return stdout.Bytes(), nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, exec.ErrNotFound):
		err = fmt.Errorf("%w: %w", ErrNoTool, err)
	}
	return nil, &failure{name, err, strings.TrimSpace(stderr.String())}
}
