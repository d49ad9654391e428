package invoke

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/trace"
)

// traced runs a call as a step of the span of ctx, if it has one.
func traced(
	ctx context.Context, c Call, run func(context.Context, Call) (Reply, error),
) (Reply, error) {
	if trace.From(ctx) == nil {
		return run(ctx, c)
	}
	typ := typeOf(c.Path)
	kind := trace.Plugin
	if c.Joined {
		kind = trace.Delegate
	}
	trace.From(ctx).Hide(trace.Secrets(c.Stdin, c.Env.Args)...)
	ctx, span := trace.Start(ctx, kind, typ, attributes(c))
	reply, err := run(ctx, c)
	switch {
	case err != nil:
		span.Set(trace.ErrorCode, int(cni.CodeOf(err)))
	case c.Env.Command == cni.Add:
		if changes := resultChanges(c.Stdin, reply.Stdout); len(changes) > 0 {
			span.Set(trace.Result, changes)
		}
	}
	span.End(err)
	return reply, err
}

// attributes returns the attributes of a call that are known before it.
func attributes(c Call) map[string]any {
	name, _, _ := cni.DecodeHeader(c.Stdin)
	all := trace.Texts(map[string]string{
		trace.Verb: string(c.Env.Command), trace.PluginType: typeOf(c.Path),
		trace.PluginPath: c.Path, trace.Network: name, trace.ContainerID: c.Env.ContainerID,
		trace.IfName: c.Env.IfName,
	})
	if names := trace.ArgNames(c.Env.Args); len(names) > 0 {
		all[trace.Args] = names
	}
	var request struct {
		RuntimeConfig map[string]json.RawMessage `json:"runtimeConfig"`
	}
	if json.Unmarshal(c.Stdin, &request) == nil && len(request.RuntimeConfig) > 0 {
		all[trace.Capabilities] = slices.Sorted(maps.Keys(request.RuntimeConfig))
	}
	return all
}

// resultChanges describes the differences between the previous result in a request of ADD and the
// result.
func resultChanges(stdin, stdout []byte) (changes []string) {
	_, text, _ := cni.DecodeHeader(stdin)
	v, err := cni.ParseVersion(text)
	if err != nil {
		return nil
	}
	var request struct {
		PrevResult json.RawMessage `json:"prevResult"`
	}
	var before []string
	if json.Unmarshal(stdin, &request) == nil && len(request.PrevResult) > 0 {
		before = resultWords(request.PrevResult, v)
	}
	after := resultWords(stdout, v)
	for _, item := range before {
		if !slices.Contains(after, item) {
			changes = append(changes, "- "+item)
		}
	}
	for _, item := range after {
		if !slices.Contains(before, item) {
			changes = append(changes, "+ "+item)
		}
	}
	return changes
}

// resultWords describes each part of a result; it returns nil for an invalid one.
func resultWords(stdout []byte, v cni.Version) (words []string) {
	r, _, err := cni.RepairResult(stdout, v)
	if err != nil {
		return nil
	}
	for _, i := range r.Interfaces {
		word := i.Name
		if i.MTU != 0 {
			word += fmt.Sprintf(" mtu %d", i.MTU)
		}
		words = append(words, word)
	}
	for _, ip := range r.IPs {
		words = append(words, ip.Address.String())
	}
	for _, rt := range r.Routes {
		word := "route " + rt.Dst.String()
		if rt.GW.IsValid() {
			word += " via " + rt.GW.String()
		}
		words = append(words, word)
	}
	if len(r.DNS.Nameservers) > 0 {
		words = append(words, "dns "+strings.Join(r.DNS.Nameservers, " "))
	}
	return words
}
