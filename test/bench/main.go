// Bench compares the plugins of bin/tenon with the upstream plugins: latency of every verb, rate
// under concurrency, cost of a full address pool, process start, size and number of processes. One
// run measures both sides in alternating calls, each side in its own network namespace, so the
// ratios are meaningful even on a noisy host. A last row links the plugins into one process and
// compares ADD with its system calls.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// inside is set in the environment of the second instance, which owns its network and mount
// namespace.
const inside = "TENON_BENCH_INSIDE"

type options struct {
	tenon, ours, peer, peerName, json, plot string
	quick                                   bool
}

// repeats returns how often a step is measured on each side.
func (o options) repeats(full, quick int) int {
	if o.quick {
		return quick
	}
	return full
}

func main() {
	var o options
	flag.StringVar(&o.tenon, "tenon", "bin/tenon", "`binary` with the plugins to measure")
	flag.StringVar(&o.ours, "ours", "", "measure the plugins in this `directory` instead")
	flag.StringVar(&o.peer, "peer", cmp.Or(os.Getenv("PEER_DIR"), "/usr/lib/cni"), "`directory` of the plugins to compare with")
	flag.StringVar(&o.peerName, "peer-name", "upstream", "`name` of these plugins in the plot")
	flag.StringVar(&o.json, "json", "", "write the rows to this `file`, too")
	flag.StringVar(&o.plot, "plot", "", "draw the times of both sides in this `file`, as SVG")
	flag.BoolVar(&o.quick, "quick", false, "fewer repetitions: under a minute, more noise")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := runInside
	if os.Getenv(inside) == "" {
		run = enter
	}
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// enter runs this program again in network and mount namespaces of its own.
func enter(ctx context.Context, _ options) error {
	if os.Geteuid() != 0 {
		return errors.New("needs root, to create network namespaces")
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	return cmd.Run()
}

func runInside(ctx context.Context, o options) error {
	work, err := privateDirectory()
	if err != nil {
		return err
	}
	programs, err := os.MkdirTemp("", "tenon-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(programs)
	if o.ours == "" {
		o.ours = filepath.Join(programs, "installed")
		if out, err := exec.CommandContext(ctx, o.tenon, "install", o.ours).CombinedOutput(); err != nil {
			return fmt.Errorf("%s install: %w: %s", o.tenon, err, out)
		}
	}
	b := &bench{options: o, programs: programs}
	if b.ours, err = newSide(work, "ours", programs, o.ours); err != nil {
		return err
	}
	if b.peer, err = newSide(work, "peer", programs, o.peer); err != nil {
		return err
	}
	start := time.Now()
	b.printHeader()
	for _, step := range []func(context.Context) error{
		b.processStart, b.deadline, b.size, b.processes, b.latencies, b.chainWithPortmap, b.rates, b.leases, b.inProcess,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	b.printFooter(time.Since(start))
	if o.json != "" {
		err = b.writeJSON(o.json)
	}
	if o.plot != "" {
		err = errors.Join(err, b.writePlot(o.plot))
	}
	return err
}

// privateDirectory hides /run (locks, state) behind a file system of this process and returns a
// directory in it. Both end with the mount namespace.
func privateDirectory() (string, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755,nr_inodes=1m"); err != nil {
		return "", fmt.Errorf("mount tmpfs on /run: %w", err)
	}
	const work = "/run/tenon-bench"
	return work, os.Mkdir(work, 0o755)
}

func (b *bench) writeJSON(name string) error {
	out, err := json.MarshalIndent(b.rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(out, '\n'), 0o644)
}
