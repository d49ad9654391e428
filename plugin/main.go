package plugin

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

const (
	maxStdin    = 16 << 20              // bytes of a request that are read
	versionWait = 50 * time.Millisecond // how long VERSION waits for a standard input that nobody closes
)

// Main runs one call from the process environment: CNI_ variables, request on standard input, result or error object on standard output. It
// returns the exit status. SIGTERM and SIGINT cancel the call, which then takes back what it did.
func Main(d Definition, caller invoke.Caller, version string) int {
	env := cni.EnvFrom(os.Getenv)
	if env.Command == "" {
		fmt.Fprintf(os.Stderr, "CNI %s plugin %s: %s\nCNI protocol versions supported: %v\n", d.Name, version, d.About, d.Versions)
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	stdin, err := readStdin(env)
	if err != nil {
		return fail(cni.Errorf(cni.CodeIOFailure, "read standard input: %w", err), cni.Newest)
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
	if _, err := os.Stdout.Write(cni.AsError(err).Encode(v)); err != nil {
		fmt.Fprintln(os.Stderr, "write error object:", err)
	}
	return 1
}

// readStdin reads the request. VERSION has none that matters and must not hang where the runtime leaves standard input open. A verb that is
// unknown is refused without reading.
func readStdin(env cni.Env) ([]byte, error) {
	if !env.Command.Valid() {
		return nil, nil
	}
	if env.Command != cni.VersionCommand {
		return readLimited()
	}
	ch := make(chan []byte, 1)
	go func() {
		b, err := readLimited()
		if err != nil {
			b = nil
		}
		ch <- b
	}()
	select {
	case b := <-ch:
		return b, nil
	case <-time.After(versionWait):
		return nil, nil
	}
}

func readLimited() ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(os.Stdin, maxStdin+1))
	if err == nil && len(b) > maxStdin {
		err = fmt.Errorf("request is larger than %d bytes", maxStdin)
	}
	return b, err
}
