// Compare measures go-cni on three sides: with upstream's libcni and plugins, with Tenon's libcni
// that starts Tenon's plugins, and with Tenon's libcni and plugins in the process of the program.
// The sides take turns call by call, each in network and mount namespaces of its own, so the ratios
// are meaningful even on a noisy host. scripts/bench-programs builds the programs and runs it.
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
	"runtime"
	"syscall"
	"time"
)

type options struct {
	programs, tenon, peer, json string
	quick, disk                 bool
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
	flag.StringVar(&o.programs, "programs", "",
		"`directory` of the programs upstream, processes and linked")
	flag.StringVar(&o.tenon, "tenon", "bin/tenon", "`binary` with Tenon's plugins")
	flag.StringVar(&o.peer, "peer", cmp.Or(os.Getenv("PEER_DIR"), "/usr/lib/cni"),
		"`directory` of upstream's plugins")
	flag.StringVar(&o.json, "json", "", "write the rows to this `file`, too")
	flag.BoolVar(&o.quick, "quick", false, "fewer repetitions: more noise")
	flag.BoolVar(&o.disk, "disk", false,
		"keep the files of libcni and host-local on disk, not in memory")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	runtime.LockOSThread() // Pdeathsig kills a program if the thread that started it ends
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("needs root, to create network namespaces")
	}
	work, err := os.MkdirTemp("", "tenon-speed-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	installed := filepath.Join(work, "installed")
	out, err := exec.CommandContext(ctx, o.tenon, "install", installed).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s install: %w: %s", o.tenon, err, out)
	}
	b := &bench{options: o}
	defer func() { err = errors.Join(err, b.stop()) }()
	for i, plugins := range []string{o.peer, installed, installed} {
		if b.sides[i], err = o.start(ctx, work, sideNames[i], plugins); err != nil {
			return err
		}
	}
	start := time.Now()
	b.printHeader()
	for _, step := range []func() error{b.alternate, b.rate, b.sizes} {
		if err := step(); err != nil {
			return err
		}
	}
	fmt.Printf("\n%.0f s\n", time.Since(start).Seconds())
	if o.json == "" {
		return nil
	}
	return b.writeJSON()
}

func (b *bench) writeJSON() error {
	out, err := json.MarshalIndent(b.rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(b.json, append(out, '\n'), 0o644)
}
