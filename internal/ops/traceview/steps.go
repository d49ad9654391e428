package traceview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/internal/trace"
)

// Step is a span as people see it: without the spans that only repeat another one.
type Step struct {
	Name       string
	Details    []string // results, message types
	Lines      []string // changed elements of rule sets
	Kind       trace.Kind
	Start      time.Duration // since the start of the operation
	Total      time.Duration
	Own        time.Duration // Total without the children
	Wait       time.Duration // the part of Total that was spent waiting
	Failed     bool
	Error      string // unless a child has it
	Unfinished bool
	Children   []*Step

	raw string // the error, also if a child has it
}

// Steps returns an operation as steps.
func Steps(operation *Span) *Step { return stepOf(operation, operation) }

func stepOf(s, operation *Span) *Step {
	step := &Step{
		Name: s.Name, Kind: s.Kind, Details: s.details(operation), Lines: s.Texts(trace.NFTElement),
		Start: time.Duration(s.Start - operation.Start), Total: s.Duration(),
		Failed: s.Error != "", Error: s.Error, raw: s.Error, Unfinished: s.Unfinished,
	}
	for _, c := range s.Children {
		if c.Kind == trace.Process && s.Kind != trace.Operation {
			step.inProcess(c, operation)
			continue
		}
		step.Children = append(step.Children, stepOf(c, operation))
	}
	step.measure()
	return step.simplified()
}

// details returns the attributes that people look for.
func (s *Span) details(operation *Span) (list []string) {
	if verb := s.Text(trace.Verb); s != operation && verb != operation.Text(trace.Verb) &&
		(s.Kind == trace.Plugin || s.Kind == trace.Delegate) {
		list = append(list, verb)
	}
	list = append(list, s.Texts(trace.Result)...)
	list = append(list, counted(s.Texts(trace.NetlinkType))...)
	if tables := s.Texts(trace.NFTTable); len(tables) > 0 {
		list = append(list, "table "+strings.Join(tables, ", "))
	}
	return list
}

// counted joins texts that follow each other.
func counted(texts []string) (list []string) {
	if len(texts) > 0 {
		list = append(list, strings.Join(texts, ", "))
	}
	return list
}

// inProcess adds the steps of a plugin that runs as a process to the step of its call.
func (step *Step) inProcess(process, operation *Span) {
	inside := stepOf(process, operation)
	outside := func(what string, from, to time.Duration) *Step {
		took := max(0, to-from)
		return &Step{
			Name: fmt.Sprintf("%s of process %d", what, process.PID), Kind: trace.Process,
			Start: from, Total: took, Own: took,
		}
	}
	end := inside.Start + inside.Total
	step.Children = append(step.Children, outside("start", step.Start, inside.Start))
	step.Children = append(step.Children, inside.Children...)
	step.Children = append(step.Children, outside("end", end, step.Start+step.Total))
	step.Unfinished = step.Unfinished || inside.Unfinished
}

// measure computes the own and the waiting time, and leaves an error to the child that it comes
// from.
func (step *Step) measure() {
	step.Own = step.Total
	if step.Kind == trace.Wait {
		step.Wait = step.Total
	}
	for _, c := range step.Children {
		step.Own -= c.Total
		if step.Kind != trace.Wait {
			step.Wait += c.Wait
		}
		if c.raw != "" && strings.Contains(step.raw, c.raw) {
			step.Error = ""
		}
	}
	step.Own = max(0, step.Own)
}

// simplified returns the step without a child that only repeats it, or the child if that shows
// more.
func (step *Step) simplified() *Step {
	if step.Kind != trace.Change && step.Kind != trace.Undo {
		return step
	}
	single := step.Kind == trace.Change && len(step.Children) == 1
	if single && step.Children[0].Kind == trace.Delegate {
		c := step.Children[0]
		c.Start, c.Total, c.Own = step.Start, step.Total, c.Own+step.Own
		return c
	}
	commit := slices.IndexFunc(step.Children, func(c *Step) bool { return c.Name == commitName })
	others := slices.ContainsFunc(step.Children, func(c *Step) bool {
		return c.Name != commitName && c.Kind != trace.Wait
	})
	if commit < 0 || others {
		return step
	}
	c := step.Children[commit]
	step.Details = append(step.Details, c.Details...)
	step.Details = append(step.Details, "commit "+Milliseconds(c.Total)+" ms")
	step.Lines = c.Lines
	step.Own += c.Total
	step.Children = slices.Delete(step.Children, commit, commit+1)
	step.Error = cmp.Or(c.Error, step.Error)
	return step
}

// commitName is the name of the step in which package nft changes rule sets.
const commitName = "nft commit"

// Milliseconds returns a duration in milliseconds, with one digit after the point.
func Milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond))
}
