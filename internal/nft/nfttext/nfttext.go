// Package nfttext writes rule sets in the language of nft(8), for people who have neither the host
// nor its nft. It writes what it cannot express, such as matches of iptables, as comments.
package nfttext

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Write writes a rule set.
func Write(w io.Writer, r *nftmsg.Ruleset) error {
	for _, t := range r.Tables {
		flags := ""
		if t.Dormant {
			flags = "\tflags dormant\n"
		}
		if _, err := fmt.Fprintf(w, "table %s %s {\n%s", t.Family, t.Name, flags); err != nil {
			return err
		}
		for i := range r.Sets {
			if s := &r.Sets[i]; s.Table == t.Table && s.Flags&unix.NFT_SET_ANONYMOUS == 0 {
				writeSet(w, s)
			}
		}
		for _, c := range r.Chains {
			if c.Table == t.Table {
				writeChain(w, r, c)
			}
		}
		if _, err := io.WriteString(w, "}\n"); err != nil {
			return err
		}
	}
	return nil
}

func writeSet(w io.Writer, s *nftmsg.ListedSet) {
	kind, types := "set", typeNames(s.KeyType, s.KeyLen)
	switch {
	case s.Flags&unix.NFT_SET_MAP != 0 && s.DataType == verdictData:
		kind, types = "map", types+" : verdict"
	case s.Flags&unix.NFT_SET_MAP != 0:
		kind, types = "map", types+" : "+typeNames(s.DataType, s.DataLen)
	}
	fmt.Fprintf(w, "\t%s %s {\n\t\ttype %s\n", kind, s.Name, types)
	if s.Intervals {
		fmt.Fprint(w, "\t\tflags interval\n")
	}
	if s.Comment != "" {
		fmt.Fprintf(w, "\t\tcomment %s\n", quote(s.Comment))
	}
	if list := elements(s); len(list) > 0 {
		fmt.Fprintf(w, "\t\telements = { %s }\n", strings.Join(list, ",\n\t\t             "))
	}
	fmt.Fprint(w, "\t}\n")
}

// elements returns the elements of a set or a map as text, in the order of their keys: the kernel
// lists a hash table in any order.
func elements(s *nftmsg.ListedSet) (list []string) {
	all := slices.Clone(s.Elements)
	slices.SortStableFunc(all, func(a, b nftmsg.Element) int { return bytes.Compare(a.Key, b.Key) })
	if s.CatchAll != nil {
		all = append(all, *s.CatchAll)
	}
	for _, e := range all {
		text := Key(s, e)
		if e.Comment != "" {
			text += " comment " + quote(e.Comment)
		}
		if value := Value(s, e); value != "" {
			text += " : " + value
		}
		list = append(list, text)
	}
	return list
}

// Key returns the key of an element of a set or a map: a value, a prefix or a range in each part, or
// "*" for the catch-all element, which has none.
func Key(s *nftmsg.ListedSet, e nftmsg.Element) string {
	types := split(s.KeyType, s.KeyLen)
	switch {
	case len(e.Key) == 0:
		return "*"
	case e.KeyEnd != nil:
		return keyRange(types, e.Key, e.KeyEnd)
	}
	return types.format(e.Key)
}

// Value returns the value or the verdict of an element of a map, "" for an element of a set.
func Value(s *nftmsg.ListedSet, e nftmsg.Element) string {
	switch {
	case e.Verdict != nil:
		return verdict(*e.Verdict)
	case e.Value != nil:
		return split(s.DataType, s.DataLen).format(e.Value)
	}
	return ""
}

// hookNames are the names of hooks, by family.
func hookName(f nftmsg.Family, hook uint32) string {
	names := []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
	switch {
	case f == nftmsg.NetDev:
		names = []string{"ingress", "egress"}
	case f == nftmsg.ARP:
		names = []string{"input", "output"}
	}
	if int(hook) < len(names) {
		return names[hook]
	}
	return fmt.Sprint(hook)
}

func writeChain(w io.Writer, r *nftmsg.Ruleset, c nftmsg.ListedChain) {
	fmt.Fprintf(w, "\tchain %s {\n", c.Name)
	if c.Base {
		devices := ""
		if len(c.Devices) == 1 {
			devices = fmt.Sprintf(" device %s", quote(c.Devices[0]))
		} else if len(c.Devices) > 1 {
			devices = fmt.Sprintf(" devices = { %s }", strings.Join(c.Devices, ", "))
		}
		policy := "accept"
		if c.Drops {
			policy = "drop"
		}
		fmt.Fprintf(w, "\t\ttype %s hook %s%s priority %d; policy %s;\n", c.Type,
			hookName(c.Table.Family, c.Hook), devices, c.Priority, policy)
	}
	for _, rule := range r.Rules {
		if rule.Table == c.Table && rule.Chain == c.Name {
			fmt.Fprintf(w, "\t\t%s\n", Rule(r, rule))
		}
	}
	fmt.Fprint(w, "\t}\n")
}

// Rule returns a rule as text. r holds the anonymous sets that it uses.
func Rule(r *nftmsg.Ruleset, rule nftmsg.ListedRule) string {
	p := &printer{ruleset: r, table: rule.Table, values: map[uint32]value{}}
	for _, e := range rule.Exprs {
		p.expr(e)
	}
	text := strings.Join(p.parts, " ")
	if rule.Comment != "" {
		text += " comment " + quote(rule.Comment)
	}
	if len(p.unknown) > 0 {
		text = strings.TrimSpace(text + " # also " + strings.Join(p.unknown, ", "))
	}
	return text
}

// quote writes a text between quotation marks. nft(8) has no escapes; its names and comments contain
// no quotation marks.
func quote(text string) string {
	clean := strings.Map(func(r rune) rune {
		if r == '"' || r < ' ' {
			return '?'
		}
		return r
	}, text)
	return `"` + clean + `"`
}

func verdict(v nftmsg.Verdict) string {
	switch v.Code {
	case unix.NFT_JUMP:
		return "jump " + v.Chain
	case unix.NFT_GOTO:
		return "goto " + v.Chain
	case unix.NFT_RETURN:
		return "return"
	case unix.NFT_CONTINUE:
		return "continue"
	case 0:
		return "drop"
	case 1:
		return "accept"
	case 3:
		return "queue"
	}
	return fmt.Sprintf("verdict %d", v.Code)
}
