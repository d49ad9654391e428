// Command man writes the manual pages and shell completions of tenon, tenon-dhcp and the plugins.
package main

import (
	"fmt"
	"os"

	"github.com/tenon-cni/tenon/internal/manual"
)

func main() {
	os.Clearenv() // variables provide defaults of flags
	if err := manual.Generate(os.Args[1:], tenon(), daemon(), vswitch()); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}
