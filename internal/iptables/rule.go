package iptables

import (
	"net/netip"
	"strings"
)

// Rule is as much of a rule as tells to whom it belongs.
type Rule struct {
	Chain        string // it is in
	Target       string // it jumps or goes to: a chain, or ACCEPT, DROP, RETURN and others; "" if it does not
	Comment      string
	Source, Dest netip.Addr // the first addresses of the networks it is for, not valid where it is for all
	In, Out      string     // names of interfaces it is for, "" where it is for all
	Others       int        // how many conditions it has besides
}

// parseRule reads a line of iptables-save; ok is false if it is not a rule.
func parseRule(line string) (r Rule, ok bool) {
	words := split(line)
	if len(words) < 2 || words[0] != "-A" {
		return Rule{}, false
	}
	r.Chain = words[1]
	for i := 2; i < len(words); i++ {
		option, value, negated := words[i], "", words[i-1] == "!"
		if i+1 < len(words) {
			value = words[i+1]
		}
		switch {
		case option == "-j" || option == "-g":
			r.Target = value
			return r, true // the rest is about the target
		case option == "-m":
		case option == "--comment":
			r.Comment = value
		case negated || !r.condition(option, value):
			if strings.HasPrefix(option, "-") {
				r.Others++
			}
			continue // not all have a value
		}
		i++ // the value is no option
	}
	return r, true
}

// condition notes a condition, unless it is one of the others.
func (r *Rule) condition(option, value string) bool {
	switch option {
	case "-s":
		r.Source = firstAddr(value)
	case "-d":
		r.Dest = firstAddr(value)
	case "-i":
		r.In = value
	case "-o":
		r.Out = value
	default:
		return false
	}
	return true
}

func firstAddr(s string) netip.Addr {
	n, _ := netip.ParsePrefix(s)
	return n.Addr()
}

// words makes lines that say the same equal: what iptables-save writes without quotes may stand in quotes.
func words(line string) string { return strings.Join(split(line), "\x00") }

// split splits a line into words. A word with spaces stands in quotes; a backslash takes the next byte as it is.
func split(line string) []string {
	var words []string
	var word strings.Builder
	quoted, inWord := false, false
	for i := 0; i < len(line); i++ {
		switch b := line[i]; {
		case b == '"':
			quoted, inWord = !quoted, true
		case b == '\\' && i+1 < len(line):
			i++
			word.WriteByte(line[i])
			inWord = true
		case b == ' ' && !quoted:
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteByte(b)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words
}

// Quote returns a word as it stands in a line: in quotes if it has to. What no line can have stays as it is, and is refused.
func Quote(word string) string {
	if word != "" && !strings.ContainsAny(word, " \"'\\") {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}

// MaxComment is the length in bytes of the longest comment of a rule.
const MaxComment = 255

// printable reports whether a line has nothing but printable ASCII: no end that would begin another, and nothing that
// quoting would change.
func printable(line string) bool {
	return !strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' })
}
