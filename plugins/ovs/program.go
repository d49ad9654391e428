package ovs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/program"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Program is the file name of the binary that runs the plugin.
const Program = "tenon-ovs"

// RepairCommand is the argument with which the program restores the objects of an attachment: see
// [Repair].
const RepairCommand = "repair"

// Plugin describes the plugin to programs that cannot run it: its calls fail. Repair starts the
// program.
var Plugin = Define(nil)

// errProgram is the error of calls of [Plugin].
var errProgram = cni.Errorf(cni.CodeInvalidConfig, "plugin ovs is a program of its own").
	WithDetails("install the program " + Program + " as ovs in the plugin directory")

// refuse is the [Dialer] of [Plugin].
func refuse(context.Context, string, time.Duration) (Switch, error) { return nil, errProgram }

// repairRequest is the standard input of the program's repair. Standard output is a list of the
// restored objects.
type repairRequest struct {
	Env     cni.Env
	Request json.RawMessage // as for CHECK
}

// restoreByProgram lets the program restore the objects of an attachment.
func restoreByProgram(ctx context.Context, s *attach.Session) (restored []string, err error) {
	in, err := json.Marshal(repairRequest{s.Env, s.Stdin()})
	if err != nil {
		return nil, err
	}
	out, err := program.Output(ctx, in, Program, RepairCommand)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(out, &restored); err != nil {
		return nil, fmt.Errorf("output of %s: %w", Program, err)
	}
	return restored, nil
}

// Repair restores the objects of an attachment for another program: it reads the request and writes
// the list of restored objects.
func Repair(ctx context.Context, p plugin.Definition, in io.Reader, out io.Writer) error {
	var request repairRequest
	if err := json.NewDecoder(in).Decode(&request); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	restored := []string{}
	err := p.With(ctx, request.Env, request.Request, func(c *plugin.Call, of plugin.Plugin) error {
		r, ok := of.(session.Repairer)
		if !ok {
			return errors.New("plugin ovs cannot repair")
		}
		var repairs session.Repairs
		if err := r.Repair(ctx, c, &repairs); err != nil || repairs.Restore == nil {
			return err
		}
		list, err := repairs.Restore(ctx, session.Allow)
		restored = append(restored, list...)
		return err
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(restored)
}
