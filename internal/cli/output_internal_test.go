package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHarmless: of the characters that a terminal interprets, only line breaks, tabs and the
// command's own colours remain.
func TestHarmless(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"web  10.88.0.2\n":          "web  10.88.0.2\n",
		"a\tb\n":                    "a\tb\n",
		"\x1b[31mFAIL\x1b[0m web\n": "\x1b[31mFAIL\x1b[0m web\n",
		"\x1b]0;title\x07":          `\x1b]0;title\x07`,
		"\x1b[2J\x1b[8mhidden":      `\x1b[2J\x1b[8mhidden`,
		"line\rover\n":              `line\x0dover` + "\n",
		"\u009b31m":                 `\x9b31m`,
		"\x9b31m":                   `\x9b31m`,
		"txt.\u202eexe":             `txt.\u202eexe`,
		"日本語 ✓ …\n":                 "日本語 ✓ …\n",
		"\x1b\x1b[31m[2J\x1b[0m":    `\x1b` + "\x1b[31m[2J\x1b[0m",
		"\x1b[\x1b[0m2J":            `\x1b[` + "\x1b[0m2J",
		"":                          "",
	} {
		if got := string(harmless([]byte(in))); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// TestFilesKeepBytes: output that is not for a terminal does not change, and Write reports the
// length of its argument in both cases.
func TestFilesKeepBytes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const archive = "\x1f\x8b\x08\x00"
	for _, terminal := range []bool{false, true} {
		o := newOutput(f)
		if o.terminal {
			t.Fatal("a file counts as a terminal")
		}
		o.terminal = terminal
		if n, err := o.Write([]byte(archive)); n != len(archive) || err != nil {
			t.Errorf("Write returned %d, %v", n, err)
		}
	}
	got, err := os.ReadFile(path)
	if want := archive + `\x1f\x8b\x08\x00`; err != nil || string(got) != want {
		t.Errorf("%q, want %q (%v)", got, want, err)
	}
}
