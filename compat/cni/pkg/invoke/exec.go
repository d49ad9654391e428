package invoke

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"
)

// Exec finds and runs plugins. Programs that run plugins in their own way implement it; they embed
// [version.PluginDecoder] for Decode.
type Exec interface {
	// ExecPlugin runs the plugin at a path with a request and a complete environment, and returns
	// its standard output. A nil environ means the environment of this process.
	ExecPlugin(
		ctx context.Context, pluginPath string, stdinData []byte, environ []string,
	) ([]byte, error)

	// FindInPath returns the path of a plugin.
	FindInPath(plugin string, paths []string) (string, error)

	// Decode decodes a reply to VERSION.
	Decode(jsonBytes []byte) (version.PluginInfo, error)
}

// DefaultExec is the [Exec] of functions that receive none. Its plugins write to the standard error
// of this process.
type DefaultExec struct {
	*RawExec
	version.PluginDecoder
}

// orDefault returns e or, if e is nil, a [DefaultExec].
func orDefault(e Exec) Exec {
	if e == nil {
		return &DefaultExec{RawExec: &RawExec{Stderr: os.Stderr}}
	}
	return e
}

// ExecPluginWithResult runs a plugin and decodes its result by the rules of the version in it. If
// the result has no version or an empty one, it gets the version of netconf, by default 0.1.0. A
// nil exec means a [DefaultExec]. Errors of exec are returned unchanged; decoding errors
// wrap an error of encoding/json.
func ExecPluginWithResult(
	ctx context.Context, pluginPath string, netconf []byte, args CNIArgs, exec Exec,
) (types.Result, error) {
	out, err := orDefault(exec).ExecPlugin(ctx, pluginPath, netconf, args.AsEnv())
	if err != nil {
		return nil, err
	}
	resultVersion, result, err := withVersion(out, netconf)
	if err != nil {
		return nil, err
	}
	return create.Create(resultVersion, result)
}

// ExecPluginWithoutResult runs a plugin and ignores its output. A nil exec means a [DefaultExec].
// Errors of exec are returned unchanged.
func ExecPluginWithoutResult(
	ctx context.Context, pluginPath string, netconf []byte, args CNIArgs, exec Exec,
) error {
	_, err := orDefault(exec).ExecPlugin(ctx, pluginPath, netconf, args.AsEnv())
	return err
}

// withVersion returns a result and its version. It sets the version of netconf if the result has
// none.
func withVersion(result, netconf []byte) (string, []byte, error) {
	configured, err := create.DecodeVersion(netconf)
	if err != nil {
		return "", nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(result, &object); err != nil {
		return "", nil, fmt.Errorf("failed to unmarshal raw result: %w", err)
	}
	var own string
	if json.Unmarshal(object["cniVersion"], &own) == nil && own != "" {
		return own, result, nil
	}
	if object == nil { // the result is null
		object = map[string]json.RawMessage{}
	}
	if object["cniVersion"], err = json.Marshal(configured); err != nil {
		return "", nil, err
	}
	result, err = json.Marshal(object)
	return configured, result, err
}

// tooOld is the whole error text of plugins that predate VERSION.
const tooOld = "unknown CNI_COMMAND: VERSION"

// GetVersionInfo asks a plugin for the versions that it supports. A plugin that does not know the
// verb VERSION supports 0.1.0 only. A nil exec means a [DefaultExec]. Errors of exec are returned
// unchanged.
func GetVersionInfo(ctx context.Context, pluginPath string, exec Exec) (version.PluginInfo, error) {
	exec = orDefault(exec)
	request, err := json.Marshal(map[string]string{"cniVersion": version.Current()})
	if err != nil {
		return nil, err
	}
	// The first plugins with VERSION required these variables.
	args := &Args{Command: "VERSION", NetNS: "dummy", IfName: "dummy", Path: "dummy"}
	reply, err := exec.ExecPlugin(ctx, pluginPath, request, args.AsEnv())
	if err != nil {
		if err.Error() == tooOld {
			return version.PluginSupports("0.1.0"), nil
		}
		return nil, err
	}
	return exec.Decode(reply)
}
