package screen_test

import (
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/test/screen"
)

// long has parts of ten lines.
var long = strings.Repeat(strings.Repeat("a line\n", 10)+"\n", 5)

func TestDraw(t *testing.T) {
	t.Parallel()
	short := screen.Draw("tenon ps", "NETWORK\n<pods>\n")
	if strings.Contains(short, "animation") || !strings.Contains(short, "&lt;pods&gt;") {
		t.Errorf("short output: %s", short)
	}
	moving := screen.Draw("tenon demo", long)
	if !strings.Contains(moving, "parts 12s step-end") || !strings.Contains(moving, "translateY(-589px)") {
		t.Errorf("long output: %s", moving)
	}
	for line, want := range map[string]string{
		strings.Repeat("é", 101):                    strings.Repeat("é", 100) + "</text>",
		strings.Repeat("a", 98) + " bcd":            ">        bcd</text>",
		"fix  " + strings.Repeat("word ", 20) + "x": ">        word x</text>",
	} {
		if got := screen.Draw("x", line); !strings.Contains(got, want) {
			t.Errorf("%s: %s", line, got)
		}
	}
}

func TestDifference(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b string
		same bool
	}{
		{"ok (0.4 ms)", "ok (12 ms)", true},
		{"MAC 92:d6:4e:8a:d6:7c in /proc/1/fd/6", "MAC 02:d6:4e:8a:d6:7c in /proc/200/fd/7", true},
		{"web  0s  ok", "web  10s ok", true},
		{"address 10.88.0.2", "address 10.88.0.3", false},
		{"one\ntwo", "one", false},
		{strings.Repeat("word ", 40) + "1 ms", strings.Repeat("word ", 40) + "10000 ms", true},
		{"STOPPED at step 2", "STOPPED at step 3", false},
	} {
		found, err := screen.Difference(screen.Draw("x", row.a), screen.Draw("x", row.b))
		if err != nil || (found == "") != row.same {
			t.Errorf("%q and %q: %s, %v", row.a, row.b, found, err)
		}
	}
	if _, err := screen.Difference("<svg>", screen.Draw("x", "")); err == nil {
		t.Error("a damaged picture has no error")
	}
}
