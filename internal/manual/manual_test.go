package manual_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/manual"
)

// program returns a program with one visible command and a page of another program.
func program() manual.Program {
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "demo", Short: "Show \\ pages", Long: `First paragraph,
.two lines.

A list:
  -a  indented

Environment:
  DEMO  what it does

Exit status: 0.`}
	sub := &cobra.Command{Use: "run NAME", Short: "Run it", Example: "  demo run x", Run: run,
		Long: "Run it.\n\nExit status: 0 run, 1\nnot run."}
	sub.Flags().Int("count", 3, "repeat `N` times")
	sub.Flags().Bool("json", false, "print JSON")
	_ = sub.Flags().SetAnnotation("json", "shared", nil)
	foreign := &cobra.Command{Use: "other", Short: "Call another program", Run: run}
	root.AddCommand(sub, foreign, &cobra.Command{Use: "hidden", Hidden: true, Run: run})
	return manual.Program{
		Command: root, Common: "shared",
		Status:  []manual.Entry{{Name: "0", Text: "Success."}},
		Files:   []manual.Entry{{Name: "/etc/demo", Text: "Settings."}},
		SeeAlso: []string{"man(1)"}, Foreign: []string{"demo-other"},
	}
}

const rootPage = `.\" Generated from the commands of demo; do not edit.
.TH "DEMO" "8" "1970-01-02" "Tenon 1.0" "Tenon"
.nh
.ad l
.SH "NAME"
demo \- show \e pages
.SH "SYNOPSIS"
\fBdemo\fR COMMAND [flags]
.SH "DESCRIPTION"
First paragraph,
\&.two lines.
.PP
A list:
.PP
.nf
  \-a  indented
.fi
.SH "COMMANDS"
.TP
\fBdemo other\fR
Call another program; see demo\-other(8).
.TP
\fBdemo run\fR
Run it; see demo\-run(8).
.SH "OPTIONS"
.TP
\fB\-h, \-\-help\fR
help for demo
.SH "EXIT STATUS"
.TP
\fB0\fR
Success.
.SH "ENVIRONMENT"
.TP
\fBDEMO\fR
what it does
.SH "FILES"
.TP
\fB/etc/demo\fR
Settings.
.SH "SEE ALSO"
\fBman\fR(1)
`

const runPage = `.\" Generated from the commands of demo; do not edit.
.TH "DEMO-RUN" "8" "1970-01-02" "Tenon 1.0" "Tenon"
.nh
.ad l
.SH "NAME"
demo\-run \- run it
.SH "SYNOPSIS"
\fBdemo run\fR NAME [flags]
.SH "DESCRIPTION"
Run it.
.SH "OPTIONS"
.TP
\fB\-\-count N\fR
repeat N times (default 3)
.SH "COMMON OPTIONS"
.TP
\fB\-\-json\fR
print JSON
.SH "EXAMPLES"
.nf
  demo run x
.fi
.SH "EXIT STATUS"
0 run, 1
not run.
.SH "SEE ALSO"
\fBdemo\fR(8),
\fBdemo\-other\fR(8)
`

func TestPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := manual.Generate([]string{"-out", dir, "-version", "1.0", "-date", "86400"}, program()); err != nil {
		t.Fatal(err)
	}
	var files []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"completion/bash/demo", "completion/fish/demo.fish", "completion/zsh/_demo",
		"man/man8/demo-run.8", "man/man8/demo.8"}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]string{"demo.8": rootPage, "demo-run.8": runPage} {
		page, err := os.ReadFile(filepath.Join(dir, "man", "man8", name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(page)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{}, {"-out", "x", "-date", "today"}, {"-out", "x", "more"}, {"-other"},
	} {
		if err := manual.Generate(args); err == nil {
			t.Errorf("%q accepted", args)
		}
	}
}
