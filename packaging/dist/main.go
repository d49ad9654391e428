// Command dist builds the artefacts of a release: binaries, archives, packages and the image. Two
// runs on one commit with the same version of Go write the same bytes.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/tenon-cni/tenon/packaging/internal/provenance"
)

const usage = `dist builds the artefacts of a release.

  make dist DISTFLAGS='-arch amd64,arm64 -only tar,deb'

It reads two environment variables: TENON_RELEASE_KEY is the absolute path of the SSH key that
signs, and SOURCE_DATE_EPOCH the time of all files, in seconds since 1970 (default: of the commit).

`

func main() { os.Exit(run()) }

func run() int {
	var o options
	flags := flag.NewFlagSet("dist", flag.ContinueOnError)
	flags.StringVar(&o.arches, "arch", "", "`processors`, such as amd64,arm64 (default all)")
	flags.StringVar(&o.only, "only", "", "`artefacts`: "+names()+" (default all)")
	flags.StringVar(&o.builder, "builder", provenance.LocalBuilder, "`URI` of the builder")
	flags.StringVar(&o.root, "root", "..", "`directory` of the repository")
	flags.StringVar(&o.out, "out", "", "absolute `path` of the directory of the artefacts "+
		"(default bin/dist).\nWithout -arch and -only, a run replaces all earlier artefacts")
	flags.StringVar(&o.version, "version", "", "`version` (default: from the tags of git)")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(os.Args[1:]); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "dist: unexpected argument", flags.Arg(0))
		return 2
	}
	o.environ, o.epoch = os.Environ(), os.Getenv("SOURCE_DATE_EPOCH")
	o.key = os.Getenv("TENON_RELEASE_KEY")
	for name, path := range map[string]string{"-out": o.out, "TENON_RELEASE_KEY": o.key} {
		if path != "" && !filepath.IsAbs(path) { // make dist runs in directory packaging
			fmt.Fprintf(os.Stderr, "dist: %s: expected an absolute path, got %q\n", name, path)
			return 2
		}
	}
	o.out = cmp.Or(o.out, filepath.Join(o.root, "bin", "dist"))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := o.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		return 1
	}
	return 0
}
