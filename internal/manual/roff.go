package manual

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// roff writes a page in the macros of man(7).
type roff struct {
	b      bytes.Buffer
	begins bool // the last line is the title of a section
}

func (r *roff) line(text string) {
	fmt.Fprintln(&r.b, text)
	r.begins = strings.HasPrefix(text, ".SH ")
}

func (r *roff) title(name string, p Program) {
	r.line(`.\" Generated from the commands of ` + p.Command.Name() + `; do not edit.`)
	r.line(fmt.Sprintf(".TH %q %q %q %q %q", name, section, p.date.UTC().Format(time.DateOnly),
		"Tenon "+p.version, "Tenon"))
	r.line(".nh") // names of flags and files stay whole
	r.line(".ad l")
}

func (r *roff) section(title string) { r.line(`.SH "` + strings.ToUpper(title) + `"`) }

// synopsis prints the ways to call a command.
func (r *roff) synopsis(cmd *cobra.Command) {
	words := strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath())
	if cmd.HasAvailableSubCommands() {
		words = " COMMAND [flags]"
	}
	r.line(`\fB` + escape(cmd.CommandPath()) + `\fR` + escape(words))
}

// text prints paragraphs. Indented lines stay as they are.
func (r *roff) text(text string) {
	first := true
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if !first {
			r.line(".PP")
		}
		first = false
		var verbatim []string
		for line := range strings.SplitSeq(paragraph, "\n") {
			if strings.HasPrefix(line, " ") {
				verbatim = append(verbatim, line)
				continue
			}
			r.verbatim(verbatim)
			verbatim = nil
			r.line(escape(line))
		}
		r.verbatim(verbatim)
	}
}

// verbatim prints lines without filling them.
func (r *roff) verbatim(lines []string) {
	if len(lines) == 0 {
		return
	}
	if !r.begins {
		r.line(".PP")
	}
	r.line(".nf")
	for _, l := range lines {
		r.line(escape(l))
	}
	r.line(".fi")
}

// entries prints a section with a list, or nothing if the list is empty.
func (r *roff) entries(title string, list []Entry) {
	if len(list) == 0 {
		return
	}
	r.section(title)
	for _, e := range list {
		r.line(".TP")
		r.line(`\fB` + escape(e.Name) + `\fR`)
		r.line(escape(e.Text))
	}
}

// pages prints references to other pages.
func (r *roff) pages(names []string) {
	for i, name := range names {
		page, number, _ := strings.Cut(name, "(")
		end := ","
		if i == len(names)-1 {
			end = ""
		}
		r.line(`\fB` + escape(page) + `\fR(` + number + end)
	}
}

// escape protects text from roff: backslashes, hyphens, and the first character of a line.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`, "…", `\[u2026]`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return strings.ReplaceAll(text, "\n", " ")
}
