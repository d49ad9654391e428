package invoke

import (
	"context"
	"encoding/json"

	"github.com/tenon-cni/tenon/cni"
)

// Fake is a set of plugins for tests: handlers by type and verb. It needs no files, because it is
// also a [Finder]. A missing type is not found. A missing verb succeeds: ADD prints the previous
// result, or an empty one, and VERSION reports all versions.
type Fake map[string]map[cni.Command]Handler

// Call implements [Caller].
func (f Fake) Call(ctx context.Context, c Call) (Reply, error) {
	l := Local{}
	for typ, verbs := range f {
		l[typ] = func(ctx context.Context, c Call) ([]byte, bool) {
			if h := verbs[c.Env.Command]; h != nil {
				return h(ctx, c)
			}
			return succeed(c.Env.Command, c.Stdin), true
		}
	}
	return l.Call(ctx, c)
}

// Find implements [Finder]; the path is the type.
func (f Fake) Find(_ []string, typ string) (string, error) {
	if _, ok := f[typ]; !ok {
		return "", cni.Errorf(cni.CodeInvalidConfig, "plugin %q %w", typ, ErrNotFound)
	}
	return typ, nil
}

// Print returns a handler that succeeds and prints stdout.
func Print(stdout string) Handler {
	return func(context.Context, Call) ([]byte, bool) { return []byte(stdout), true }
}

// Fail returns a handler that fails with err.
func Fail(err *cni.Error) Handler {
	return func(context.Context, Call) ([]byte, bool) { return err.Encode(cni.Newest), false }
}

func succeed(verb cni.Command, stdin []byte) []byte {
	switch verb {
	case cni.Add:
		var request struct {
			PrevResult json.RawMessage `json:"prevResult"`
		}
		if json.Unmarshal(stdin, &request) == nil && request.PrevResult != nil {
			return request.PrevResult
		}
		return []byte("{}")
	case cni.VersionCommand:
		r := cni.VersionReply{CNIVersion: cni.Newest.String()}
		for _, v := range cni.Versions() {
			r.Supported = append(r.Supported, v.String())
		}
		return r.Encode()
	}
	return nil
}
