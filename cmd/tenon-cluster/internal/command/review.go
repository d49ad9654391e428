package command

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// The states of a node in a review.
const (
	reviewConfirmed = "confirmed" // it trusts the store
	reviewAgrees    = "agrees"    // it uses nothing that the store does not show
	reviewUses      = "uses"      // it uses addresses that another node may get
	reviewSilent    = "silent"    // its agent runs, and has not answered
	reviewOff       = "off"       // its agent does not run
)

// review is what the nodes say about a store that was restored.
type review struct {
	Doubt    *cluster.Doubt     `json:"doubt,omitempty"`
	Nodes    []reviewed         `json:"nodes"`
	Findings []registry.Finding `json:"findings"` // about the store itself
	Safe     bool               `json:"safe"`     // to confirm all nodes

	snapshot registry.Snapshot
}

// reviewed is a node of a review.
type reviewed struct {
	Node  string         `json:"node"`
	State string         `json:"state"`
	Lost  []cluster.Loss `json:"lost,omitempty"`

	document registry.Node
}

// pollTime is the interval at which a command looks for answers.
const pollTime = time.Second

// ask asks all nodes that have not been confirmed, and waits until the agents that run have
// answered.
func (a *app) ask(ctx context.Context, s *session, wait time.Duration) (review, error) {
	snapshot, err := s.registry.Snapshot(ctx)
	if err != nil {
		return review{}, err
	}
	r := newReview(snapshot, nil)
	if len(r.silent()) == 0 {
		return r, nil
	}
	question, err := s.registry.Questions.Ask(ctx)
	if err != nil {
		return r, err
	}
	answers, err := a.awaitAnswers(ctx, s, question, r, wait)
	if err != nil {
		return r, err
	}
	if snapshot, err = s.registry.Snapshot(ctx); err != nil { // nodes may have joined
		return r, err
	}
	return newReview(snapshot, answers), nil
}

// awaitAnswers waits until the running agents of a review have answered a question, or for a
// duration, and returns the answers.
func (a *app) awaitAnswers(
	ctx context.Context, s *session, question string, r review, wait time.Duration,
) (map[string]cluster.Answer, error) {
	said := 0
	for end := a.Now().Add(wait); ; {
		answers, err := s.registry.Questions.Answers(ctx, question)
		if err != nil {
			return nil, err
		}
		r = newReview(r.snapshot, answers)
		missing := len(r.silent())
		if missing == 0 || !a.Now().Before(end) {
			return answers, nil
		}
		if missing != said {
			fmt.Fprintf(a.Stderr, "waiting for %s\n", some(r.silent(), 5))
			said = missing
		}
		select {
		case <-time.After(pollTime):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// newReview combines the store and the answers of the nodes.
func newReview(snapshot registry.Snapshot, answers map[string]cluster.Answer) review {
	r := review{Doubt: snapshot.Doubt, Nodes: []reviewed{}, Findings: snapshot.Check(),
		snapshot: snapshot}
	if r.Findings == nil {
		r.Findings = []registry.Finding{}
	}
	for _, n := range snapshot.Nodes {
		if n.State == cluster.NodeFenced {
			continue // it uses no address
		}
		answer, answered := answers[n.Name]
		v := reviewed{Node: n.Name, Lost: answer.Lost, document: n}
		switch {
		case n.Store == snapshot.Meta.Nonce:
			v.State = reviewConfirmed
		case answered && len(answer.Lost) > 0:
			v.State = reviewUses
		case answered:
			v.State = reviewAgrees
		case n.Live:
			v.State = reviewSilent
		default:
			v.State = reviewOff
		}
		r.Nodes = append(r.Nodes, v)
	}
	r.Safe = r.obstacle() == ""
	return r
}

// count returns the number of nodes in a state.
func (r *review) count(state string) (n int) {
	for _, v := range r.Nodes {
		if v.State == state {
			n++
		}
	}
	return n
}

// silent returns the nodes that have not answered although their agent runs.
func (r *review) silent() (names []string) {
	for _, v := range r.Nodes {
		if v.State == reviewSilent {
			names = append(names, v.Node)
		}
	}
	return names
}

// some joins the first of a list of names, and says how many follow.
func some(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// waiting returns the nodes that a confirmation concerns.
func (r *review) waiting() (list []registry.Node) {
	for _, v := range r.Nodes {
		if v.State != reviewConfirmed {
			list = append(list, v.document)
		}
	}
	return list
}

// obstacle says why it is not safe to confirm the nodes, or returns "".
func (r *review) obstacle() string {
	var list []string
	for _, o := range []struct {
		n    int
		text string
	}{
		{r.count(reviewUses), "with addresses that the store does not show"},
		{r.count(reviewOff), "without a running agent"},
		{r.count(reviewSilent), "without an answer"},
	} {
		if o.n > 0 {
			list = append(list, plural(o.n, "node")+" "+o.text)
		}
	}
	if n := len(r.Findings); n > 0 {
		list = append(list, plural(n, "finding")+" in the store")
	}
	return strings.Join(list, ", ")
}

// review asks the nodes, and prints their answers and the next step.
func (a *app) review(ctx context.Context, s *session, wait time.Duration) error {
	r, err := a.ask(ctx, s, wait)
	if err != nil {
		return err
	}
	if err := a.print(r, func() error { return a.printReview(r) }); err != nil {
		return err
	}
	if !r.Safe {
		return exitStatus(statusFailure)
	}
	return nil
}

func (a *app) printReview(r review) error {
	if d := r.Doubt; d != nil {
		a.printf("the store was restored or replaced: %s, %s: %s\n", d.Author,
			d.Since.UTC().Format(time.RFC3339), d.Cause)
	}
	if len(r.waiting()) == 0 && r.Doubt == nil {
		a.printf("no node distrusts the store\n")
		a.hint("if it was restored nevertheless, run: " + a.name + " confirm --restored")
		return nil
	}
	rows := [][]string{{"NODE", "AGENT", "ANSWER"}}
	for _, v := range r.Nodes {
		rows = append(rows, v.rows()...)
	}
	if err := a.table(rows); err != nil {
		return err
	}
	a.nextSteps(r)
	return nil
}

// rows returns the rows of a table for a node.
func (v reviewed) rows() (rows [][]string) {
	agent := "runs"
	if v.State == reviewOff || v.State == reviewConfirmed && !v.document.Live {
		agent = "off"
	}
	switch v.State {
	case reviewConfirmed:
		return [][]string{{v.Node, agent, "confirmed"}}
	case reviewAgrees:
		return [][]string{{v.Node, agent, "agrees with the store"}}
	case reviewUses:
		for _, l := range v.Lost {
			rows = append(rows, []string{v.Node, agent, "uses " + lossText(l)})
		}
		return rows
	}
	return [][]string{{v.Node, agent, "none"}}
}

// lossText describes addresses in use that the store does not show.
func lossText(l cluster.Loss) string {
	var addrs []string
	for _, addr := range l.Addrs {
		addrs = append(addrs, addr.String())
	}
	text := strings.Join(addrs, ", ")
	if more := int(l.Used) - len(addrs); more > 0 && text != "" {
		text += fmt.Sprintf(" and %d more", more)
	} else if more > 0 {
		text = fmt.Sprintf("%d addresses", more)
	}
	if l.Block.IsSingleIP() {
		return text + " of pool " + l.Pool
	}
	return fmt.Sprintf("%s of block %s in pool %s", text, l.Block, l.Pool)
}

// nextSteps prints what an operator has to do now.
func (a *app) nextSteps(r review) {
	for _, v := range r.Nodes {
		switch v.State {
		case reviewUses:
			a.hint(fmt.Sprintf("node %s: detach the containers with these addresses; "+
				"tenon ipam list shows them there", v.Node))
		case reviewOff:
			a.hint(fmt.Sprintf("node %s: start its agent, or if the node is gone: %s release --node %s "+
				"--evidence TEXT", v.Node, a.name, v.Node))
		case reviewSilent:
			a.hint(fmt.Sprintf("node %s: its agent has not answered yet; if it does not, see its log", v.Node))
		}
	}
	if len(r.Findings) > 0 {
		a.hint("correct the findings of: " + a.name + " check")
	}
	if !r.Safe {
		a.hint("then run this command again")
		return
	}
	a.hint("start the agents of nodes that joined after the snapshot and are not in this list")
	a.hint("then run: " + a.name + " confirm --all-nodes")
}

// agree is the begin of a sentence: "1 node agrees", "3 nodes agree".
func agree(n int) string {
	if n == 1 {
		return "1 node agrees"
	}
	return fmt.Sprintf("%d nodes agree", n)
}
