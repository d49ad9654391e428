package packet

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/iptables/legacy"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Rules is a ruleset, prepared for evaluation.
type Rules struct {
	bases  []nftmsg.ListedChain // by hook and priority
	chains map[chainKey][]nftmsg.ListedRule
	sets   map[chainKey]*nftmsg.ListedSet
	lookup Lookup
	passed map[chainKey]bool // base chains that accept every packet
	rest   func(nftmsg.Table, string) ([]nftmsg.ListedRule, error)
}

type chainKey struct {
	table nftmsg.Table
	name  string
}

// Lookup answers the questions of rules about routes (fib and addrtype).
type Lookup interface {
	// Type returns the type of an address for this namespace (RTN_…).
	Type(p *Packet, source bool) uint32
	// Own returns the first address of an interface.
	Own(index int, ipv4 bool) (netip.Addr, bool)
	// Out returns the interface of the route to the source of a packet, which strict reverse path
	// filters compare; ok is false if there is none.
	Out(p *Packet, source bool) (out Interface, ok bool)
}

// NewRules prepares a ruleset. Chains of dormant tables see no packets.
func NewRules(r *nftmsg.Ruleset, lookup Lookup) *Rules {
	prepared := &Rules{lookup: lookup, rest: r.Rest, chains: map[chainKey][]nftmsg.ListedRule{},
		sets: map[chainKey]*nftmsg.ListedSet{}, passed: map[chainKey]bool{}}
	for _, c := range r.Chains {
		dormant := slices.ContainsFunc(r.Tables, func(t nftmsg.TableState) bool {
			return t.Table == c.Table && t.Dormant
		})
		if c.Base && !dormant {
			prepared.bases = append(prepared.bases, c)
		}
	}
	slices.SortStableFunc(prepared.bases, func(a, b nftmsg.ListedChain) int {
		return cmp.Compare(a.Priority, b.Priority)
	})
	for _, rule := range r.Rules {
		key := chainKey{rule.Table, rule.Chain}
		prepared.chains[key] = append(prepared.chains[key], rule)
	}
	for i := range r.Sets {
		s := &r.Sets[i]
		prepared.sets[chainKey{s.Table, s.Name}] = s
	}
	return prepared
}

// Verdict is the fate of a packet at a hook.
type Verdict string

// The verdicts. After Unknown, such as a queue to a program, the fate is not known.
const (
	Accept  Verdict = "accept"
	Drop    Verdict = "drop"
	Reject  Verdict = "reject"
	Unknown Verdict = "unknown"
)

// Place is a rule, or the policy of a base chain.
type Place struct {
	Table   nftmsg.Table
	Chain   string
	Number  int // of the rule in its chain, from 1; 0: the policy
	Handle  uint64
	Comment string
	// Packets is how many packets met the rule or the policy so far; Counted is false if it counts
	// none.
	Packets uint64
	Counted bool
}

func (p Place) String() string {
	chain := fmt.Sprintf("chain %s %s %s", p.Table.Family, p.Table.Name, p.Chain)
	if p.Number == 0 {
		return "the policy of " + chain
	}
	return fmt.Sprintf("rule %d of %s", p.Number, chain)
}

// Program returns the program and the table if the chain has the name of one of iptables, such as
// "iptables-legacy" and "filter"; else two empty strings.
func (p Place) Program() (program, table string) {
	programs := map[nftmsg.Family]string{nftmsg.IPv4: "iptables", nftmsg.IPv6: "ip6tables"}
	program = programs[p.Table.Family]
	table, isLegacy := strings.CutSuffix(p.Table.Name, legacy.Suffix)
	tables := []string{"filter", "nat", "mangle", "raw", "security"}
	switch {
	case program == "":
	case isLegacy:
		return program + "-legacy", table
	case slices.Contains(tables, table) && p.Chain == strings.ToUpper(p.Chain):
		return program, table
	}
	return "", ""
}

// Doubt is a rule that could not be evaluated, with the part that could not.
type Doubt struct {
	Place Place
	Part  string
}

// Result is what a hook did with a packet.
type Result struct {
	Verdict Verdict
	By      *Place             // the rule or policy that ended the walk, nil if no chain did
	Base    nftmsg.ListedChain // in which the walk ended
	NAT     []Place            // the rules that changed addresses, in their order
	Passed  []Place            // the rules with an accept verdict that matched
	Doubts  []Doubt
	Limits  []Place // rules with a limit or a quota, which counts as not exhausted
}

// Fresh returns the same rules without the effect of [Rules.Pass].
func (r *Rules) Fresh() *Rules {
	fresh := *r
	fresh.passed = map[chainKey]bool{}
	return &fresh
}

// of returns the rules of a chain.
func (r *Rules) of(key chainKey) (list []nftmsg.ListedRule, err error) {
	list, known := r.chains[key]
	if known || r.rest == nil {
		return list, nil
	}
	if list, err = r.rest(key.table, key.name); err == nil {
		r.chains[key] = list
	}
	return list, err
}

// Pass makes a base chain that has dropped a packet accept every packet, as after a repair.
func (r *Rules) Pass(base nftmsg.ListedChain) { r.passed[chainKey{base.Table, base.Name}] = true }

// AtLink returns the base chains that see the packets of one link, before or after all other hooks.
// Hook and Bridge do not evaluate them.
func (r *Rules) AtLink(link string, egress bool) (list []Place) {
	for _, c := range r.bases {
		out := c.Table.Family == nftmsg.NetDev && c.Hook == unix.NF_NETDEV_EGRESS
		if slices.Contains(c.Devices, link) && out == egress {
			list = append(list, Place{Table: c.Table, Chain: c.Name})
		}
	}
	return list
}

// Hook evaluates the base chains of a hook (NF_INET_…) for a packet of the network layer, and
// applies translations to it. Rules of NAT chains see only the first packet of a connection.
func (r *Rules) Hook(hook uint32, p *Packet) Result {
	families := []nftmsg.Family{nftmsg.INet, nftmsg.IPv6}
	if p.is4() {
		families[1] = nftmsg.IPv4
	}
	return r.walk(hook, families, p)
}

// Bridge evaluates the base chains of a hook (NF_BR_…) of family bridge.
func (r *Rules) Bridge(hook uint32, p *Packet) Result {
	return r.walk(hook, []nftmsg.Family{nftmsg.Bridge}, p)
}

func (r *Rules) walk(hook uint32, families []nftmsg.Family, p *Packet) Result {
	result := Result{Verdict: Accept}
	translated := false
	restores := hook == unix.NF_INET_PRE_ROUTING || hook == unix.NF_INET_LOCAL_OUT
	defer func() {
		if restores && result.Verdict == Accept {
			p.restore()
		}
	}()
	for _, base := range r.bases {
		if restores && base.Hook == hook && base.Priority >= nftmsg.PriorityDNAT {
			p.restore()
		}
		if base.Hook != hook || !slices.Contains(families, base.Table.Family) ||
			base.Type == "nat" && (p.Conn.State != New || p.Conn.Status&Confirmed != 0 || translated) ||
			r.passed[chainKey{base.Table, base.Name}] {
			continue
		}
		w := &walker{rules: r, packet: p, result: &result, hook: hook, base: base}
		end := w.policy()
		translated = translated || w.translated
		switch end.verdict {
		case Accept:
		default:
			result.Verdict, result.By, result.Base = end.verdict, &end.place, base
			return result
		}
	}
	return result
}

// outcome is the end of a chain.
type outcome struct {
	verdict Verdict // "" if no rule decided
	place   Place
}

// walker is one walk through a base chain.
type walker struct {
	rules      *Rules
	packet     *Packet
	result     *Result
	hook       uint32
	base       nftmsg.ListedChain
	translated bool
	depth      int
}

// maxDepth limits jumps, as in the kernel (NFT_JUMP_STACK_SIZE).
const maxDepth = 16

func (w *walker) policy() outcome {
	end := w.chain(w.base.Name)
	if end.verdict != "" {
		return end
	}
	end = outcome{Accept, Place{Table: w.base.Table, Chain: w.base.Name, Packets: w.base.Packets,
		Counted: w.base.Packets > 0}}
	if w.base.Drops {
		end.verdict = Drop
	}
	return end
}

// chain evaluates a chain. The verdict is "" if it returns.
func (w *walker) chain(name string) outcome {
	if w.depth++; w.depth > maxDepth {
		return outcome{verdict: Unknown}
	}
	defer func() { w.depth-- }()
	list, err := w.rules.of(chainKey{w.base.Table, name})
	if err != nil {
		w.result.Doubts = append(w.result.Doubts, Doubt{Place{Table: w.base.Table, Chain: name}, err.Error()})
	}
	for i, rule := range list {
		place := Place{Table: rule.Table, Chain: name, Number: i + 1, Handle: rule.Handle,
			Comment: rule.Comment}
		m := machine{walker: w, place: place}
		verdict := m.run(rule)
		place = m.place
		if m.doubt != "" {
			w.result.Doubts = append(w.result.Doubts, Doubt{place, m.doubt})
		}
		if verdict == nil {
			continue
		}
		switch v := *verdict; v.Code {
		case nftmsg.Accept:
			w.result.Passed = append(w.result.Passed, place)
			return outcome{Accept, place}
		case nftmsg.Drop:
			return outcome{Drop, place}
		case verdictReject:
			return outcome{Reject, place}
		case unix.NFT_RETURN:
			return outcome{}
		case unix.NFT_JUMP:
			if end := w.chain(v.Chain); end.verdict != "" {
				return end
			}
		case unix.NFT_GOTO:
			return w.chain(v.Chain)
		case unix.NFT_CONTINUE:
		default: // queue and stolen
			return outcome{Unknown, place}
		}
	}
	return outcome{}
}

// verdictReject is the internal code of a rule that answers with an error.
const verdictReject = -100

// verdictQueue is NF_QUEUE: a program decides about the packet.
const verdictQueue = 3
