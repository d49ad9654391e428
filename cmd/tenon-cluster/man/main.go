// Command man writes the manual pages and shell completions of tenon-cluster.
package main

import (
	"fmt"
	"os"

	"github.com/tenon-cni/tenon/internal/manual"
)

func main() {
	os.Clearenv() // variables provide defaults of flags
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	r, err := manual.ParseArgs(args)
	if err != nil {
		return err
	}
	p := cluster()
	p.Version, p.Date = r.Version, r.Date
	return manual.Write(r.Dir, p)
}
