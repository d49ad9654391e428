// Command rows lists the tests that prove each requirement of the catalogue (conformance.Rows). A
// test proves a requirement if its name, a comment or a string contains the identifier. The file
// untested.tsv gives the reason for each requirement without a test. The command fails if a
// requirement has neither, or if a test names an identifier that the catalogue does not contain.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tenon-cni/tenon/conformance"
)

//go:embed untested.tsv
var untested string

func main() {
	verbose := flag.Bool("v", false, "print every requirement with the tests that carry it")
	flag.Parse()
	ok, err := run(os.Stdout, ".", *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rows:", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(w io.Writer, root string, verbose bool) (ok bool, err error) {
	rows, err := conformance.Rows()
	if err != nil {
		return false, err
	}
	reasons, err := parseReasons(untested)
	if err != nil {
		return false, err
	}
	mentions, err := scan(os.DirFS(root), rows)
	if err != nil {
		return false, err
	}
	return report{rows, reasons, mentions}.print(w, verbose), nil
}

// parseReasons reads the lines "ID tab reason".
func parseReasons(table string) (map[string]string, error) {
	reasons := map[string]string{}
	for line := range strings.Lines(table) {
		id, reason, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok || reasons[id] != "" {
			return nil, fmt.Errorf("untested.tsv: %q is no line \"ID tab reason\", or one that is there twice", line)
		}
		reasons[id] = reason
	}
	return reasons, nil
}
