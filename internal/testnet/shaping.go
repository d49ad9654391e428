package testnet

import (
	"fmt"
	"slices"
	"strings"
)

// Shaping lists the qdiscs of a namespace except the kernel's defaults, and their filters, one per
// line.
func Shaping(n *Namespace) (lines []string, err error) {
	out, err := whole(func() (string, error) { return n.Output("", "tc", "qdisc", "show") })
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line) // qdisc tbf 1: dev veth0 root …
		if len(fields) < 5 || fields[2] == "0:" || fields[3] != "dev" {
			continue
		}
		lines = append(lines, strings.Join(fields, " "))
		hooks := map[string][]string{"ingress": {"ingress"},
			"clsact": {"ingress", "egress"}}[fields[1]]
		for _, hook := range hooks {
			filters, err := filters(n, fields[4], hook)
			if err != nil {
				return nil, err
			}
			lines = append(lines, filters...)
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// filters lists the filters of a hook, each with its match and actions.
func filters(n *Namespace, dev, hook string) (lines []string, err error) {
	out, err := whole(func() (string, error) {
		return n.Output("", "tc", "filter", "show", "dev", dev, hook)
	})
	for filter := range strings.SplitSeq(out, "filter ") {
		if strings.Contains(filter, "order ") { // the remaining lines describe hash tables
			lines = append(lines,
				fmt.Sprintf("filter dev %s %s %s", dev, hook,
					strings.Join(unnumbered(strings.Fields(filter)), " ")))
		}
	}
	return lines, err
}

// unnumbered omits the kernel's numbers of a filter, and the words before them.
func unnumbered(words []string) (out []string) {
	for i := 0; i < len(words); i++ {
		if slices.Contains([]string{"fh", "ht", "key", "index", "ref", "bind"}, words[i]) {
			if words[i] != "key" {
				i++
			}
			continue
		}
		out = append(out, words[i])
	}
	return out
}
