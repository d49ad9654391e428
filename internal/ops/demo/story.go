package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// story prints the steps of the demonstration.
type story struct {
	out     io.Writer
	colour  bool
	chapter int
}

func (s *story) style(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *story) bold(text string) string  { return s.style("1", text) }
func (s *story) faint(text string) string { return s.style("2", text) }
func (s *story) green(text string) string { return s.style("32", text) }

// step runs fn under a title and prints its duration.
func (s *story) step(title string, fn func() error) error {
	s.chapter++
	fmt.Fprintf(s.out, "\n%s\n", s.bold(fmt.Sprintf("%d. %s", s.chapter, title)))
	start := time.Now()
	if err := fn(); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "   %s %s\n", s.green("ok"), s.faint(took(start)))
	return nil
}

// say prints indented lines.
func (s *story) say(format string, args ...any) {
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		fmt.Fprintln(s.out, "   "+strings.TrimRight(line, "\n"))
	}
}

func took(start time.Time) string {
	return fmt.Sprintf("(%.1f ms)", float64(time.Since(start))/float64(time.Millisecond))
}
