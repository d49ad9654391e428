package plugin

import (
	"context"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

// Delegator calls other plugins with the request and the environment of the call it belongs to, as the specification
// asks ("Delegated plugins"). Executables are looked up in CNI_PATH. An error keeps the code of the delegate; it is
// an [*invoke.Error] if the delegate was called.
type Delegator struct{ input }

// Add calls the delegate's ADD.
func (d Delegator) Add(ctx context.Context, typ string) (*cni.Result, error) {
	out, err := d.call(ctx, typ, cni.Add)
	if err != nil {
		return nil, err
	}
	r, err := cni.DecodeResult(out, d.version)
	if err != nil {
		return nil, &invoke.Error{Plugin: typ, Command: cni.Add, Err: cni.AsError(err)}
	}
	return r, nil
}

// Del calls the delegate's DEL, whatever the verb of the call is: it also takes back an ADD.
func (d Delegator) Del(ctx context.Context, typ string) error {
	_, err := d.call(ctx, typ, cni.Del)
	return err
}

// Check calls the delegate's CHECK.
func (d Delegator) Check(ctx context.Context, typ string) error {
	_, err := d.call(ctx, typ, cni.Check)
	return err
}

// Status calls the delegate's STATUS. A delegate that is too old for the verb counts as ready.
func (d Delegator) Status(ctx context.Context, typ string) error {
	return d.optional(d.call(ctx, typ, cni.Status))
}

// GC calls the delegate's GC. A delegate that is too old for the verb has nothing to collect.
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
	if len(d.env.Paths()) == 0 {
		return nil, cni.Errorf(cni.CodeInvalidEnvironment, "required environment variables are missing: CNI_PATH").
			WithDetails("it has to name the folder of plugin " + typ)
	}
	path, err := invoke.Lookup(d.caller, d.env.Paths(), typ)
	if err != nil {
		return nil, err
	}
	env := d.env
	env.Command = verb
	reply, err := d.caller.Call(ctx, invoke.Call{Path: path, Env: env, Stdin: d.stdin, Joined: true})
	if err != nil {
		return nil, err
	}
	return reply.Stdout, nil
}
