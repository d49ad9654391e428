package judge_test

import (
	"context"
	"log"
	"os"

	"github.com/tenon-cni/tenon/conformance/judge"
	"github.com/tenon-cni/tenon/conformance/report"
)

// A program judges a plugin and prints the report.
func ExamplePlugins() {
	judge.Main() // first in the main function
	r, err := judge.Plugins(context.Background(), []string{"/opt/cni/bin/my-plugin"},
		judge.Options{Profile: report.Spec11})
	if err != nil {
		log.Fatal(err)
	}
	if err := report.Text(os.Stdout, r, report.TextOptions{}); err != nil {
		log.Fatal(err)
	}
	os.Exit(r.Status())
}
