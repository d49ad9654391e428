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
	maxStdin    = 16 << 20              // bytes of a request that are read
	versionWait = 50 * time.Millisecond // how long VERSION waits for a standard input that nobody closes
)

// Main runs one call from the process environment: CNI_ variables, request on standard input, result or error object
// on standard output. It returns the exit status. SIGTERM and SIGINT cancel the call, which then takes back what it
// did. What stands in TRACEPARENT, TRACESTATE and BAGGAGE the plugin finds with [invoke.TraceFrom] and delegates get;
// a TRACEPARENT that is not valid is passed on, and otherwise nothing.
func Main(d Definition, caller invoke.Caller, version string) int {
	if d.Helper != nil && len(os.Args) == 3 && os.Args[1] == "helper" {
		return d.Helper(os.Args[2], os.Stderr)
	}
	env := cni.EnvFrom(os.Getenv)
	if env.Command == "" {
		versions := strings.Trim(strings.ReplaceAll(fmt.Sprint(d.Versions), " ", ", "), "[]")
		fmt.Fprintf(os.Stderr, "CNI %s plugin %s\nCNI protocol versions supported: %s\n", d.Name, version, versions)
		return 0
	}
	if env.Command == cni.VersionCommand {
		return write(d.versionReply(pollStdin(versionWait)))
	}
	// Writing to a pipe that nobody reads must be an error like any other, not the end of the process.
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
		// Nobody will learn what was attached, so it must not stay.
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

// readStdin reads the request. What the environment rules out is refused without reading.
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

// pollStdin reads standard input as far as it comes within a time. VERSION needs nothing of it and must not hang
// where the runtime leaves it open. It gets by without goroutines, because the start of a plugin is what VERSION
// measures.
func pollStdin(within time.Duration) []byte {
	var in []byte
	deadline := time.Now().Add(within)
	buf := make([]byte, 4096)
	for len(in) <= maxStdin {
		fds := []unix.PollFd{{Fd: int32(os.Stdin.Fd()), Events: unix.POLLIN}}
		left := time.Until(deadline)
		if ready, err := unix.Poll(fds, int(left.Milliseconds())); left <= 0 || ready != 1 || err != nil {
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

// write prints and returns the exit status.
func write(out []byte) int {
	if _, err := os.Stdout.Write(out); err != nil {
		fmt.Fprintln(os.Stderr, "write standard output:", err)
		return 1
	}
	return 0
}
