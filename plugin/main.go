package plugin

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
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
// passes an invalid TRACEPARENT on to delegates and otherwise ignores it.
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
	if env.Command == cni.VersionCommand {
		return write(d.versionReply(pollStdin(versionWait)))
	}
	// A write to a closed pipe must return an error instead of ending the process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	stdin, err := readStdin(env)
	if err != nil {
		return fail(cni.Errorf(cni.CodeIOFailure, "read standard input: %w", err), cni.Newest)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if t, ok := invoke.TraceFromEnv(os.Getenv); ok {
		ctx = invoke.WithTrace(ctx, t)
	}
	out, err := d.Serve(ctx, env, stdin, caller)
	if err != nil {
		return fail(err, errorVersion(stdin))
	}
	if _, err := os.Stdout.Write(out); err != nil {
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
