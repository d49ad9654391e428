package xtables

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/kernel/netns"
)

// LegacyJumps lists the jumps of POSTROUTING in the nat table of the legacy kind.
func LegacyJumps(ctx context.Context, ns *netns.NS, f Family) ([]Jump, error) {
	lines, err := f.legacyCommands().saved(ctx, ns)
	if err != nil {
		return nil, err
	}
	var jumps []Jump
	for _, line := range lines {
		if j, ok := parseJump(line); ok {
			jumps = append(jumps, j)
		}
	}
	return jumps, nil
}

// LegacyRemove removes the jumps that match from the nat table of the legacy kind, and with the last jump to a chain the
// chain, in one transaction. The caller holds the lock of the namespace.
func LegacyRemove(ctx context.Context, ns *netns.NS, f Family, match func(Jump) bool) error {
	c := f.legacyCommands()
	lines, err := c.saved(ctx, ns)
	if err != nil {
		return err
	}
	var changes, chains []string
	used := map[string]bool{}
	for _, line := range lines {
		j, ok := parseJump(line)
		switch {
		case !ok:
		case !match(j):
			used[j.Chain] = true
		default:
			changes = append(changes, "-D"+strings.TrimPrefix(line, "-A"))
			if !slices.Contains(chains, j.Chain) {
				chains = append(chains, j.Chain)
			}
		}
	}
	for _, chain := range chains {
		if !used[chain] {
			changes = append(changes, "-F "+chain, "-X "+chain)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return c.apply(ctx, ns, changes)
}

// parseJump reads a line of iptables-save; ok is false if it is not a rule of POSTROUTING that names a target.
func parseJump(line string) (j Jump, ok bool) {
	words := split(line)
	if len(words) < 2 || words[0] != "-A" || words[1] != hook {
		return Jump{}, false
	}
	for i := 2; i+1 < len(words); i++ {
		switch value := words[i+1]; words[i] {
		case "-j", "-g":
			j.Chain = value
		case "--comment":
			j.Comment = value
		case "-s":
			if n, err := netip.ParsePrefix(value); err == nil && words[i-1] != "!" {
				j.Source = n.Addr()
			}
		default:
			continue
		}
		i++ // the value is no option
	}
	return j, j.Chain != ""
}

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
