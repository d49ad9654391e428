package journal

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tenon-cni/tenon/cni"
)

// maxError limits the text of an error, in bytes.
const maxError = 240

// SetError sets the code and the text of an error; nil is success. The text is the message of the
// error without its details. Quoted text in it is masked unless public contains it, because it can
// come from arguments or from the configuration, which may hold secrets.
func (r *Record) SetError(err error, public ...string) {
	if err == nil {
		return
	}
	e := cni.AsError(err)
	r.Code = e.Code
	if r.Code == 0 {
		r.Code = cni.CodeInternal
	}
	text := strings.TrimPrefix(e.Msg, r.Attachment().String()+": ")
	r.Error = shorten(mask(text, append(public, r.Network, r.Container, r.IfName, r.Netns)))
}

// mask replaces quoted text that is not public.
func mask(s string, public []string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, `"`)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		quoted, after, closed := cutQuoted(rest)
		if closed && slices.Contains(public, quoted) {
			b.WriteString(`"` + quoted + `"`)
		} else {
			b.WriteString(`"…"`)
		}
		s = after
	}
}

// cutQuoted cuts s after its first quote that is not escaped.
func cutQuoted(s string) (quoted, after string, closed bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// shorten returns the first line of s, cut to maxError bytes.
func shorten(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) <= maxError {
		return s
	}
	end := maxError
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
