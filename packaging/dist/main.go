// Command dist builds the artefacts of a release: binaries, archives, packages and the image. Two
// runs on one commit with the same version of Go write the same bytes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/tenon-cni/tenon/packaging/internal/provenance"
)

func main() { os.Exit(run()) }

func run() int {
	var o options
	flags := flag.NewFlagSet("dist", flag.ContinueOnError)
	flags.StringVar(&o.arches, "arch", "", "`processors`, such as amd64,arm64 (default all)")
	flags.StringVar(&o.only, "only", "", "`artefacts`: "+names()+" (default all)")
	flags.StringVar(&o.builder, "builder", provenance.LocalBuilder, "`URI` of the builder")
	flags.StringVar(&o.root, "root", "..", "`directory` of the repository")
	flags.StringVar(&o.out, "out", "../bin/dist", "`directory` of the artefacts")
	flags.StringVar(&o.version, "version", "", "`version` (default: from the tags of git)")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "dist: unexpected argument", flags.Arg(0))
		return 2
	}
	o.environ, o.epoch = os.Environ(), os.Getenv("SOURCE_DATE_EPOCH")
	o.key = os.Getenv("TENON_RELEASE_KEY")
	if o.key != "" && !filepath.IsAbs(o.key) {
		fmt.Fprintln(os.Stderr, "dist: TENON_RELEASE_KEY: expected an absolute path, got", o.key)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		return 1
	}
	return 0
}
