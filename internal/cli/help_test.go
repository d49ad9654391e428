package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// Every line of every help text fits a terminal of 80 columns, also with environment variables and
// defaults in it.
func TestHelpFits80Columns(t *testing.T) {
	t.Parallel()
	a := &app{stdout: &output{file: temporary(t)}, stderr: newOutput(temporary(t))}
	root := a.root()
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if !cmd.Hidden {
			var out bytes.Buffer
			cmd.SetOut(&out)
			if err := cmd.Help(); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > helpWidth {
					t.Errorf("%s: %d columns: %s", cmd.CommandPath(), n, line)
				}
			}
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(root)
}

// Each flag is explained once: on the page of its command, or by the topic "flags".
func TestFlagsAreExplained(t *testing.T) {
	t.Parallel()
	a := &app{stdout: &output{file: temporary(t)}, stderr: newOutput(temporary(t))}
	root := a.root()
	help := func(cmd *cobra.Command) string {
		var out bytes.Buffer
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	topic, _, err := root.Find([]string{"flags"})
	if err != nil {
		t.Fatal(err)
	}
	add, _, err := root.Find([]string{"add"})
	if err != nil {
		t.Fatal(err)
	}
	explained := help(topic)
	own, shared, ok := strings.Cut(help(add), "Common flags")
	if !ok {
		t.Fatal("no common flags")
	}
	for _, name := range []string{"--cache-dir", "--json", "--net-dir", "--plugin-dir", "--state-dir", "--timeout", "--verbose"} {
		if !strings.Contains(shared, name) || strings.Contains(own, "\n      "+name) ||
			!strings.Contains(explained, name) {
			t.Errorf("%s is not a common flag", name)
		}
	}
	for _, name := range []string{"--arg", "--cap", "--id", "--ifname", "--replace"} {
		if !strings.Contains(own, name) {
			t.Errorf("%s is not explained", name)
		}
	}
}

func TestFill(t *testing.T) {
	t.Parallel()
	const text = "one two three\nfour five\n\nList:\n  kept   as   it is, however long\nsix seven eight"
	const want = "one two\nthree four\nfive\n\nList:\n  kept   as   it is, however long\nsix seven\neight"
	if diff := cmp.Diff(want, fill(text, 10)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Output to a terminal has its width, any other output has none.
func TestWidth(t *testing.T) {
	t.Parallel()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 61}); err != nil {
		t.Fatal(err)
	}
	if got := (&output{file: terminal}).Width(); got != 61 {
		t.Errorf("terminal: got %d columns, want 61", got)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got := (&output{file: file}).Width(); got != 0 {
		t.Errorf("file: got %d columns, want 0", got)
	}
}
