package iptables

import (
	"net/netip"
	"strings"
)

// Rule is the part of a rule that identifies its owner.
type Rule struct {
	Chain        string // the chain that contains the rule
	Target       string // of a jump or goto: a chain, ACCEPT, DROP, RETURN and others; or ""
	Comment      string
	Source, Dest netip.Addr // first addresses of the networks it matches, else invalid
	In, Out      string     // names of the interfaces it matches, else ""
	Others       int        // the number of other conditions
}

// parseRule parses a line of iptables-save; ok is false if the line is not a rule.
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
			return r, true // the remaining options belong to the target
		case option == "-m":
		case option == "--comment":
			r.Comment = value
		case negated || !r.condition(option, value):
			if strings.HasPrefix(option, "-") {
				r.Others++
			}
			continue // some options have no value
		}
		i++ // skip the value
	}
	return r, true
}

// condition stores a condition in its field, and reports whether it has one.
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

// words makes lines with the same meaning equal: quotes are optional around words that
// iptables-save writes without them.
func words(line string) string { return strings.Join(split(line), "\x00") }

// split splits a line into words. Words with spaces are in quotes; a backslash escapes the next
// byte.
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

// Quote returns a word in the form of a line of iptables-save, with quotes if needed. It does not
// change bytes that no line can contain; [Table.Apply] refuses them.
func Quote(word string) string {
	if word != "" && !strings.ContainsAny(word, " \"'\\") {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}

// MaxComment is the length in bytes of the longest comment of a rule.
const MaxComment = 255

// printable reports whether a line consists of printable ASCII, so that it cannot begin another
// line and needs no further quoting.
func printable(line string) bool {
	return !strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' })
}
