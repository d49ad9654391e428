// Package iptables changes the tables of iptables and ip6tables with their own tools, for
// configurations that request it. It is the only package that starts iptables-restore; it starts
// iptables-save only if rules may exist already. iptables has two variants, which do not see each
// other's rules: the nftables variant keeps its rules in nftables, where package nft can read and
// remove them; the legacy variant has tables of its own. The package works with either variant.
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

// ErrNoTool reports that iptables is not installed, or not in PATH.
var ErrNoTool = errors.New("iptables is not installed")

// Family is IPv4 or IPv6.
type Family int

const (
	IPv4 Family = iota
	IPv6
)

// Available returns nil if the tools of all given families are installed, or of both families if
// none is given. Otherwise it returns an error that wraps [ErrNoTool]. It starts no process.
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

// LegacyAvailable returns nil if a tool of the legacy variant is installed for a family, under its
// own name or as the default. It starts a process.
func LegacyAvailable(ctx context.Context, ns *netns.NS, f Family) error {
	tool := f.legacyCommands().restore
	version, err := run(ctx, ns, "", tool, "--version")
	if err == nil && bytes.Contains(version, []byte("nf_tables")) {
		return fmt.Errorf("%s is the nftables variant; the legacy variant is not installed", tool)
	}
	return err
}

// HasLegacy reports whether a namespace has a table of the legacy variant.
func (t Table) HasLegacy(ns *netns.NS) (bool, error) {
	path := [...]string{"/proc/thread-self/net/ip_tables_names",
		"/proc/thread-self/net/ip6_tables_names"}[t.Family]
	var names string
	read := func() (err error) {
		names, err = netns.ReadFile(path)
		return err
	}
	var err error
	// In a plugin the host namespace is already current; another thread would cost 0.3 ms.
	if ns.Here() {
		err = read()
	} else {
		err = ns.Run(read)
	}
	// The kernel has no legacy tables, or denies this user access to their names.
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return false, nil
	}
	return slices.Contains(strings.Fields(names), t.Name), err
}

// commands are the two programs of one variant of iptables.
type commands struct{ save, restore string }

func (f Family) commands() commands {
	return [...]commands{{"iptables-save", "iptables-restore"},
		{"ip6tables-save", "ip6tables-restore"}}[f]
}

// legacyCommands returns the programs of the legacy variant, which is not always the default.
func (f Family) legacyCommands() commands {
	legacy := [...]commands{{"iptables-legacy-save", "iptables-legacy-restore"},
		{"ip6tables-legacy-save", "ip6tables-legacy-restore"}}[f]
	if inPath(legacy.save) && inPath(legacy.restore) {
		return legacy
	}
	return f.commands()
}

func inPath(tool string) bool {
	_, err := exec.LookPath(tool)
	return err == nil
}

// saved returns the lines that describe a table, in the input format of restore.
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

// patience returns the option that makes a tool of the legacy variant wait for the lock, in whole
// seconds and within the deadline, so that its error can name the lock. Without a deadline the wait
// is limited, too.
func patience(ctx context.Context) string {
	wait := 30 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	return fmt.Sprintf("--wait=%d", max(1, int(wait.Seconds())))
}

// failure is the failure of a tool, with the text it printed.
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

// Unwrap returns the error and its errno: [syscall.EINTR] if a signal ended the tool, [syscall.EIO]
// if the tool reported a failure, which the kernel or the rules caused.
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
		// The tool must not change anything after this process has died, because DEL may already
		// run.
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
