package script

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// transcriptLimit is the number of bytes of a text that a transcript shows.
const transcriptLimit = 4 << 10

// Transcript writes the steps of the recording and their outputs for people.
func (r *Recording) Transcript(w io.Writer) error {
	var b strings.Builder
	for _, e := range r.Events {
		if e.Step < len(r.Scenario.Steps) {
			for line := range strings.Lines(r.Scenario.Steps[e.Step].Shell) {
				fmt.Fprintf(&b, "# %s\n", shown(strings.TrimSuffix(line, "\n")))
			}
		}
		indented(&b, "", e.Output)
		for _, c := range e.Calls {
			r.transcribe(&b, c)
		}
	}
	if r.Broken != "" {
		fmt.Fprintf(&b, "the scenario ended early: %s\n", shown(r.Broken))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// transcribe writes a call with the calls of scripted plugins that it made.
func (r *Recording) transcribe(b *strings.Builder, c Result) {
	call := r.Scenario.call(c.Name)
	fmt.Fprintf(b, "\n%s: %s\n", c.Name, strings.Join(append([]string{call.Path}, call.Args...), " "))
	for _, kv := range call.Env {
		indented(b, "env ", kv)
	}
	indented(b, "in  ", string(c.Stdin))
	indented(b, "out ", string(c.Stdout))
	indented(b, "err ", string(c.Stderr))
	for _, rec := range c.Recorded {
		fmt.Fprintf(b, "  ran %s %s, exit status %d\n", shown(rec.Plugin), shown(rec.Getenv("CNI_COMMAND")), rec.Status)
	}
	switch {
	case c.Failed != "":
		fmt.Fprintf(b, "  did not start: %s\n", shown(c.Failed))
	case c.Signal != 0:
		fmt.Fprintf(b, "  ended by signal %d\n", c.Signal)
	default:
		fmt.Fprintf(b, "  exit status %d\n", c.Status)
	}
}

// call returns the call of a name.
func (s *Scenario) call(name string) Call {
	for _, step := range s.Steps {
		for _, c := range step.Calls {
			if c.Name == name {
				return c
			}
		}
	}
	return Call{}
}

// indented writes the lines of a text behind a prefix.
func indented(b *strings.Builder, prefix, text string) {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(shown(text), "\n") {
		fmt.Fprintf(b, "  %s%s\n", prefix, line)
	}
}

// shown returns the beginning of a text without characters that control a terminal.
func shown(text string) string {
	rest := ""
	if len(text) > transcriptLimit {
		text, rest = text[:transcriptLimit], fmt.Sprintf("… (%d more bytes)", len(text)-transcriptLimit)
	}
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, string(unicode.ReplacementChar))) + rest
}
