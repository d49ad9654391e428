package skel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/tenon-cni/tenon/cni"
)

// dispatcher runs one call with the environment and the streams of a process.
type dispatcher struct {
	Getenv func(string) string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

func (d *dispatcher) pluginMain(
	funcs CNIFuncs, supported version.PluginInfo, about string,
) *types.Error {
	env := cni.EnvFrom(d.Getenv)
	if env.Command == "" && about != "" {
		fmt.Fprintf(d.Stderr, "%s\nCNI protocol versions supported: %s\n", about,
			strings.Join(supported.SupportedVersions(), ", "))
		return nil
	}
	if err := checkEnvironment(env); err != nil {
		return err
	}
	if env.Command == cni.VersionCommand {
		if err := supported.Encode(d.Stdout); err != nil {
			return types.NewError(types.ErrIOFailure, err.Error(), "")
		}
		return nil
	}
	stdin, err := io.ReadAll(d.Stdin)
	if err != nil {
		return types.NewError(types.ErrIOFailure,
			fmt.Sprintf("error reading from stdin: %v", err), "")
	}
	if err := checkName(stdin); err != nil {
		return err
	}
	callback, err := funcs.callback(env.Command)
	if err != nil {
		return types.NewError(types.ErrInvalidEnvironmentVariables, err.Error(), "")
	}
	if err := checkVersion(stdin, env.Command, supported.SupportedVersions()); err != nil {
		return err
	}
	return call(callback, env, stdin)
}

// checkEnvironment checks the variables that the verb requires. It reports an invalid one before
// all missing ones.
func checkEnvironment(env cni.Env) *types.Error {
	var needsAttachment, needsNamespace, needsPath bool
	switch env.Command {
	case cni.Add, cni.Check:
		needsAttachment, needsNamespace, needsPath = true, true, true
	case cni.Del:
		needsAttachment, needsPath = true, true
	case cni.GC, cni.Status:
		needsPath = true
	}
	var missing []string
	for _, variable := range []struct {
		name     string
		value    string
		required bool
		validate func(string) *types.Error
	}{
		{"CNI_COMMAND", string(env.Command), true, nil},
		{"CNI_CONTAINERID", env.ContainerID, needsAttachment, utils.ValidateContainerID},
		{"CNI_NETNS", env.Netns, needsNamespace, nil},
		{"CNI_IFNAME", env.IfName, needsAttachment, utils.ValidateInterfaceName},
		{"CNI_PATH", env.Path, needsPath, nil},
	} {
		switch {
		case !variable.required:
		case variable.value == "":
			missing = append(missing, variable.name)
		case variable.validate != nil:
			if err := variable.validate(variable.value); err != nil {
				return err
			}
		}
	}
	if missing != nil {
		return types.NewError(types.ErrInvalidEnvironmentVariables,
			fmt.Sprintf("required env variables [%s] missing", strings.Join(missing, ",")), "")
	}
	return nil
}

// checkName checks that the configuration is JSON and has a valid name.
func checkName(stdin []byte) *types.Error {
	var conf struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(stdin, &conf); err != nil {
		return types.NewError(types.ErrDecodingFailure,
			fmt.Sprintf("error unmarshall network config: %v", err), "")
	}
	if conf.Name == "" {
		return types.NewError(types.ErrInvalidNetworkConfig, "missing network name", "")
	}
	return utils.ValidateNetworkName(conf.Name)
}

// callback returns the function of a verb, which may be nil.
func (f CNIFuncs) callback(verb cni.Command) (func(*CmdArgs) error, error) {
	switch verb {
	case cni.Add:
		return f.Add, nil
	case cni.Del:
		return f.Del, nil
	case cni.Check:
		return f.Check, nil
	case cni.GC:
		return f.GC, nil
	case cni.Status:
		return f.Status, nil
	}
	return nil, fmt.Errorf("unknown CNI_COMMAND: %s", verb)
}

// since has the first version of the specification with a verb, if it is not the first version.
var since = map[cni.Command]cni.Version{cni.Check: cni.V040, cni.GC: cni.V110, cni.Status: cni.V110}

// checkVersion checks that the version of the configuration has the verb and that the plugin
// supports it.
func checkVersion(stdin []byte, verb cni.Command, supported []string) *types.Error {
	configured, err := (&version.ConfigDecoder{}).Decode(stdin)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	if first, ok := since[verb]; ok {
		if err := checkVerb(verb, first.String(), configured, supported); err != nil {
			return err
		}
	}
	if err := (&version.Reconciler{}).CheckRaw(configured, supported); err != nil {
		return types.NewError(types.ErrIncompatibleCNIVersion, "incompatible CNI versions",
			err.Details())
	}
	return nil
}

// checkVerb compares the version of the configuration with the first version that has the verb, and
// with the versions that the plugin supports.
func checkVerb(verb cni.Command, first, configured string, supported []string) *types.Error {
	atLeast := func(v, minimum string) (bool, *types.Error) {
		ok, err := version.GreaterThanOrEqualTo(v, minimum)
		if err != nil {
			return false, types.NewError(types.ErrDecodingFailure, err.Error(), "")
		}
		return ok, nil
	}
	refused := func(part string) *types.Error {
		return types.NewError(types.ErrIncompatibleCNIVersion,
			fmt.Sprintf("%s version does not allow %s", part, verb), "")
	}
	if ok, err := atLeast(configured, first); err != nil {
		return err
	} else if !ok {
		return refused("config")
	}
	for _, v := range supported {
		if ok, err := atLeast(v, configured); ok || err != nil {
			return err
		}
	}
	return refused("plugin")
}

// call runs the callback and, for ADD before it and for DEL after it, tests the namespace.
func call(callback func(*CmdArgs) error, env cni.Env, stdin []byte) *types.Error {
	if env.Command == cni.Add {
		if err := refuseOwnNamespace(env); err != nil {
			return err
		}
	}
	if callback != nil {
		args := &CmdArgs{ContainerID: env.ContainerID, Netns: env.Netns, IfName: env.IfName,
			Args: env.Args, Path: env.Path, NetnsOverride: env.NetnsOverride, StdinData: stdin}
		if err := asError(callback(args)); err != nil {
			return err
		}
	}
	if env.Command == cni.Del {
		return refuseOwnNamespace(env)
	}
	return nil
}

// refuseOwnNamespace prevents a faulty runtime from attaching the host as a container.
func refuseOwnNamespace(env cni.Env) *types.Error {
	if env.OwnNetnsAllowed() {
		return nil
	}
	own, err := ns.CheckNetNS(env.Netns)
	if err != nil {
		return err
	}
	if own {
		return types.NewError(types.ErrInvalidNetNS,
			"plugin's netns and netns from CNI_NETNS should not be the same", "")
	}
	return nil
}

// asError returns the error of a callback as an error object: unchanged if it is one, or with the
// code and details of the one that it wraps. A nil pointer is success, because callbacks return
// variables of this type.
func asError(err error) *types.Error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*types.Error); ok {
		return e
	}
	var inner *types.Error
	if !errors.As(err, &inner) || inner == nil {
		return types.NewError(types.ErrInternal, err.Error(), "")
	}
	msg := err.Error()
	if inner.Details != "" {
		msg = strings.TrimSuffix(msg, "; "+inner.Details)
	}
	return types.NewError(inner.Code, msg, inner.Details)
}
