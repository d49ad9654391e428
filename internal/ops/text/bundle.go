package text

import (
	"fmt"
	"io"

	"github.com/tenon-cni/tenon/internal/ops/bundle"
	"github.com/tenon-cni/tenon/internal/ops/plural"
)

// Bundle lists the content of a support bundle before it is written.
func Bundle(w io.Writer, b *bundle.Bundle) {
	style := styleOf(w)
	fmt.Fprintf(w, " %s, %s\n", style.bold(plural.Count(len(b.Files), "file")), bytesText(b.Size()))
	for _, f := range b.Files {
		masked := ""
		if f.Masked > 0 {
			masked = fmt.Sprintf(" (%s masked)", plural.Count(f.Masked, "value"))
		}
		fmt.Fprintf(w, "   %-30s %9s  %s%s\n", f.Name, bytesText(f.Size), f.About, masked)
	}
	for _, f := range b.Failures {
		fmt.Fprintf(w, " %s %-30s %s\n", style.mark("!"), f.Name, f.Reason)
	}
	fmt.Fprintf(w, " Masked: %s of unknown configuration keys, CNI_ARGS and arguments of runtimes.\n",
		plural.Count(b.Masked(), "value"))
}

// bytesText formats a number of bytes.
func bytesText(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
