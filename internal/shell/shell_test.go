package shell_test

import (
	"testing"

	"github.com/tenon-cni/tenon/internal/shell"
)

func TestQuote(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"a-b_c/d.e": "a-b_c/d.e", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'", `ips=["1"]`: `'ips=["1"]'`,
		"~": "'~'", "a\nb": "'a\nb'", "x;y": "'x;y'", "ü": "'ü'",
	} {
		if got := shell.Quote(word); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}
