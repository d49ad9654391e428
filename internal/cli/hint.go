package cli

import (
	"os"
	"strings"
)

// places are the flags that say where things are. A command in a hint gets those that the user has given.
var places = []string{"net-dir", "plugin-dir", "state-dir", "cache-dir"}

// command returns a hint that ends with a command of tenon, ready to be copied: with the flags for places that the user
// has given and the command knows. what says what it does.
func (r *settings) command(what string, args ...string) string {
	words := []string{"tenon"}
	for _, arg := range args {
		words = append(words, quoted(arg))
	}
	if r.cmd != nil {
		target, _, err := r.cmd.Root().Find(args)
		for _, name := range places {
			f := r.cmd.Flags().Lookup(name)
			if err != nil || f == nil || !f.Changed || target.Flags().Lookup(name) == nil {
				continue
			}
			words = append(words, "--"+name, quoted(f.Value.String()))
		}
	}
	return what + strings.Join(words, " ")
}

// sudo returns the command that the user has run, with sudo.
func (r *settings) sudo() string {
	words := []string{"sudo", "tenon"}
	for _, arg := range os.Args[1:] {
		words = append(words, quoted(arg))
	}
	return strings.Join(words, " ")
}

// quoted returns a word as a shell needs it.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@,+%", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
