package plugin

import (
	"context"
	"errors"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

// Delegator calls other plugins with the request and the environment of the current call, as the
// specification requires ("Delegated plugins"). It looks plugins up in CNI_PATH unless the caller
// implements [invoke.Finder]. Errors keep the code and the message of the delegate; they wrap an
// [*invoke.Error] if the delegate was called.
type Delegator struct {
	input
	plugin string // name of the calling plugin
	file   string // name of its file, or ""
}

// Find looks up a delegate without calling it. The code of an error is [cni.CodeInvalidEnvironment]
// if CNI_PATH is not set, and [cni.CodeInvalidConfig] if the delegate is not found.
func (d Delegator) Find(typ string) (path string, err error) {
	path, err = invoke.Lookup(d.caller, d.env.Paths(), typ)
	if err != nil && len(d.env.Paths()) == 0 {
		return "", cni.Errorf(cni.CodeInvalidEnvironment,
			"required environment variables are missing: CNI_PATH").
			WithDetails("set CNI_PATH to the directory of plugin " + typ)
	}
	if errors.Is(err, invoke.ErrNotFound) {
		return "", cni.Errorf(cni.CodeInvalidConfig, "failed to find plugin %q in path %v", typ,
			d.env.Paths()).
			WithDetails("install the plugin there, or add its directory to CNI_PATH").Verbatim()
	}
	return path, err
}

// NeedsLink reports whether a delegate declares [Info.NeedsLink], and whether the program has a
// definition of the delegate. The definition applies to every binary of that name.
func (d Delegator) NeedsLink(typ string) (needs, known bool) {
	caller, ok := d.caller.(interface {
		definition(typ string) (Definition, bool)
	})
	if !ok {
		return false, false
	}
	of, known := caller.definition(typ)
	return of.NeedsLink, known
}

// Add calls ADD of the delegate and logs each repair that [cni.RepairResult] makes to its result.
func (d Delegator) Add(ctx context.Context, typ string) (*cni.Result, error) {
	out, err := d.call(ctx, typ, cni.Add)
	if err != nil {
		return nil, err
	}
	r, repairs, err := cni.RepairResult(out, d.version)
	if err != nil {
		return nil, &invoke.Error{Plugin: typ, Command: cni.Add, Err: cni.AsError(err)}
	}
	for _, repair := range repairs {
		d.log.Warn("repaired the result of the delegate", "delegate", typ, "repair", repair)
	}
	return r, nil
}

// Del calls DEL of the delegate during any verb, because a failed ADD needs it to roll back.
func (d Delegator) Del(ctx context.Context, typ string) error {
	_, err := d.call(ctx, typ, cni.Del)
	return err
}

// Check calls CHECK of the delegate.
func (d Delegator) Check(ctx context.Context, typ string) error {
	_, err := d.call(ctx, typ, cni.Check)
	return err
}

// Status calls STATUS of the delegate. A delegate that is too old for the verb counts as ready.
func (d Delegator) Status(ctx context.Context, typ string) error {
	return d.optional(d.call(ctx, typ, cni.Status))
}

// GC calls GC of the delegate. A delegate that is too old for the verb has nothing to collect.
func (d Delegator) GC(ctx context.Context, typ string) error {
	return d.optional(d.call(ctx, typ, cni.GC))
}

func (d Delegator) optional(_ []byte, err error) error {
	if cni.CodeOf(err) == cni.CodeIncompatibleVersion {
		return nil
	}
	return err
}

func (d Delegator) call(ctx context.Context, typ string, verb cni.Command) ([]byte, error) {
	// Prevents endless recursion: ADD fails earlier, DEL and GC have nothing to do.
	if typ == d.plugin || typ != "" && typ == d.file {
		return nil, nil
	}
	path, err := d.Find(typ)
	if err != nil {
		return nil, err
	}
	env := d.env
	env.Command = verb
	reply, err := d.caller.Call(ctx,
		invoke.Call{Path: path, Env: env, Stdin: d.stdin, Joined: true, Files: d.files,
			Journaled: true})
	if e := (*invoke.Error)(nil); errors.As(err, &e) {
		said := *e
		said.Err = e.Err.Verbatim()
		return nil, &said
	}
	if err != nil {
		return nil, err
	}
	return reply.Stdout, nil
}
