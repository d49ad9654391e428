package plugin

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/internal/trace"
	"github.com/tenon-cni/tenon/invoke"
)

const (
	maxStdin    = 16 << 20              // limit of a request, in bytes
	versionWait = 50 * time.Millisecond // time that VERSION waits for the end of standard input
)

// Main runs one call from the process environment: it reads CNI_ variables and the request on
// standard input, and writes the result or the error object to standard output. It returns the exit
// status. SIGTERM and SIGINT cancel the call, which then rolls back its changes. The plugin reads
// TRACEPARENT, TRACESTATE and BAGGAGE with [invoke.TraceFrom], and delegates inherit them; Main
// passes an invalid TRACEPARENT on to delegates and otherwise ignores it. If TENON_TRACE names a
// file, Main appends the steps of the call to it.
func Main(d Definition, caller invoke.Caller, version string) int {
	if d.Helper != nil && len(os.Args) == 3 && os.Args[1] == "helper" {
		return d.Helper(os.Args[2], os.Stderr)
	}
	env := cni.EnvFrom(os.Getenv)
	if env.Command == "" {
		versions := strings.Trim(strings.ReplaceAll(fmt.Sprint(d.Versions), " ", ", "), "[]")
		fmt.Fprintf(os.Stderr, "CNI %s plugin %s\nCNI protocol versions supported: %s\n", d.Name,
			version, versions)
		return 0
	}
	return answer(env, caller, func([]byte) (Definition, error) { return d, nil })
}

// MainOf runs one call of the plugin in defs that [Select] returns for this process, as [Main]
// does, and returns the exit status. If there is no such plugin, it prints an error object and
// returns 1. A program that contains no plugin passes no defs.
//
// MainOf does nothing and returns false if the process is not called as a plugin. It is called as a
// plugin if the file name of the program is the name of a plugin in defs, or ends in a hyphen and
// such a name, or if CNI_COMMAND is set and the program has no arguments.
func MainOf(defs []Definition, caller invoke.Caller, version string) (status int, called bool) {
	path := os.Args[0]
	program, env := filepath.Base(path), cni.EnvFrom(os.Getenv)
	if _, ok := byNames(defs, []string{program}); !ok && (env.Command == "" || len(os.Args) > 1) {
		return 0, false
	}
	if d, ok := Select(defs, path, nil); ok {
		return Main(d, caller, version), true
	}
	return answer(env, caller, func(request []byte) (Definition, error) {
		if d, ok := Select(defs, path, request); ok {
			return d, nil
		}
		return Definition{}, noPlugin(defs, program, typesOf(request).Type)
	}), true
}

// noPlugin returns the error of a call that names no plugin.
func noPlugin(defs []Definition, program, typ string) error {
	if len(defs) == 0 {
		return cni.Errorf(cni.CodeInvalidEnvironment, "%s is not a CNI plugin", program)
	}
	names := make([]string, len(defs))
	for i, d := range defs {
		names[i] = d.Name
	}
	return cni.Errorf(cni.CodeInvalidEnvironment,
		"%s is not a CNI plugin: neither its file name nor type %q of the configuration names one",
		program, typ).
		WithDetails("name the file after a plugin, as in bridge or my-bridge; the plugins are " +
			strings.Join(names, ", "))
}

// answer carries out one call of the plugin that choose returns for the request, and returns the
// exit status.
func answer(
	env cni.Env, caller invoke.Caller, choose func(request []byte) (Definition, error),
) int {
	if env.Command == cni.VersionCommand {
		stdin := pollStdin(versionWait)
		d, err := choose(stdin)
		if err != nil {
			return fail(err, errorVersion(stdin))
		}
		return write(d.versionReply(stdin))
	}
	// A write to a closed pipe must return an error instead of ending the process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	stdin, err := readStdin(env)
	if err != nil {
		return fail(cni.Errorf(cni.CodeIOFailure, "read standard input: %w", err), cni.Newest)
	}
	d, err := choose(stdin)
	if err != nil {
		return fail(err, errorVersion(stdin))
	}
	return d.main(env, caller, stdin)
}

// main serves a call and writes the result or the error object to standard output.
func (d Definition) main(env cni.Env, caller invoke.Caller, stdin []byte) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if t, ok := invoke.TraceFromEnv(os.Getenv); ok {
		ctx = invoke.WithTrace(ctx, t)
	}
	ctx, traced := d.traced(ctx, os.Getenv(trace.Variable), env, stdin)
	recorded := d.journal(os.Getenv(journal.Env), env, stdin)
	out, err := d.Serve(ctx, env, stdin, caller)
	defer func() { traced(err) }()
	if err != nil {
		status := fail(err, errorVersion(stdin))
		recorded(nil, err)
		return status
	}
	_, err = os.Stdout.Write(out)
	recorded(out, err)
	if err != nil {
		// The runtime does not learn about the attachment, so it must not stay.
		if env.Command == cni.Add {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBudget)
			defer cancel()
			env.Command = cni.Del
			if _, delErr := d.Serve(undo, env, stdin, caller); delErr != nil {
				fmt.Fprintln(os.Stderr, delErr)
			}
		}
		fmt.Fprintln(os.Stderr, "write result:", err)
		return 1
	}
	return 0
}

func fail(err error, v cni.Version) int {
	write(cni.AsError(err).Encode(v))
	return 1
}

// readStdin reads the request. It returns without reading if the environment is invalid.
func readStdin(env cni.Env) ([]byte, error) {
	if env.Validate() != nil {
		return nil, nil
	}
	b, err := io.ReadAll(io.LimitReader(os.Stdin, maxStdin+1))
	if err == nil && len(b) > maxStdin {
		err = fmt.Errorf("request is larger than %d bytes", maxStdin)
	}
	return b, err
}

// pollStdin reads the data that arrives on standard input within a time limit. VERSION does not
// need the data and must not hang if the runtime leaves standard input open. It does not use
// goroutines, to keep the start of a plugin fast.
func pollStdin(within time.Duration) []byte {
	var in []byte
	deadline := time.Now().Add(within)
	buf := make([]byte, 4096)
	for len(in) <= maxStdin {
		fds := []unix.PollFd{{Fd: int32(os.Stdin.Fd()), Events: unix.POLLIN}}
		left := time.Until(deadline)
		if ready, err := unix.Poll(fds, int(left.Milliseconds())); left <= 0 || ready != 1 ||
			err != nil {
			break
		}
		n, err := unix.Read(int(os.Stdin.Fd()), buf)
		if n <= 0 || err != nil {
			break
		}
		in = append(in, buf[:n]...)
	}
	return in
}

// write writes out to standard output and returns the exit status.
func write(out []byte) int {
	if _, err := os.Stdout.Write(out); err != nil {
		fmt.Fprintln(os.Stderr, "write standard output:", err)
		return 1
	}
	return 0
}
