package plugin

import (
	"context"
	"log/slog"

	"github.com/tenon-cni/tenon/cni"
)

// Repairer is a Plugin that keeps something where others may take it away: in the ruleset of the host, which a firewall
// flushes when it is started again. Repair puts back what is missing of what ADD has made there; the link, addresses and
// routes are not its business. It gets what CHECK gets, and may be called at any time: what is there stays as it is.
//
// An error has [cni.CodeUnknownContainer] if the container is gone, and nothing is put back for it.
type Repairer[C any] interface {
	Repair(context.Context, *Call[C]) error
}

// Repair has a plugin put back what others have taken away; it does nothing for one that is no [Repairer]. env and stdin are
// those of CHECK, in any version of the protocol: Repair is no verb of it, and no runtime can ask an executable for it.
func (d Definition) Repair(ctx context.Context, env cni.Env, stdin []byte) (err error) {
	defer d.catch(slog.Default(), &err)
	env.Command = cni.Check
	if err := validateEnv(env); err != nil {
		return err
	}
	v, err := d.header(stdin, cni.VersionCommand)
	if err != nil {
		return err
	}
	if !d.plugin.repairs() {
		return nil
	}
	c, err := d.decode(ctx, input{env: env, stdin: stdin, version: v})
	if err != nil {
		return err
	}
	if err := d.plugin.validate(c); err != nil {
		return err
	}
	return d.plugin.repair(ctx, c)
}
