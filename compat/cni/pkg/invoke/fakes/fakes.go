// Package fakes holds doubles of the interfaces of package invoke for tests. Each one records the
// arguments of its last call in Received, and returns the values in Returns.
package fakes

import (
	"context"

	"github.com/containernetworking/cni/pkg/version"
)

// CNIArgs is an invoke.CNIArgs for tests.
type CNIArgs struct {
	AsEnvCall struct {
		Returns struct {
			Env []string
		}
	}
}

// AsEnv returns AsEnvCall.Returns.Env.
func (a *CNIArgs) AsEnv() []string { return a.AsEnvCall.Returns.Env }

// RawExec finds and runs plugins for tests. It becomes an invoke.Exec together with
// [VersionDecoder] or version.PluginDecoder.
type RawExec struct {
	ExecPluginCall struct {
		Received struct {
			PluginPath string
			StdinData  []byte
			Environ    []string
		}
		Returns struct {
			ResultBytes []byte
			Error       error
		}
	}
	FindInPathCall struct {
		Received struct {
			Plugin string
			Paths  []string
		}
		Returns struct {
			Path  string
			Error error
		}
	}
}

// ExecPlugin records its arguments and returns the values in ExecPluginCall.Returns.
func (e *RawExec) ExecPlugin(
	ctx context.Context, pluginPath string, stdinData []byte, environ []string,
) ([]byte, error) {
	call := &e.ExecPluginCall
	call.Received.PluginPath = pluginPath
	call.Received.StdinData = stdinData
	call.Received.Environ = environ
	return call.Returns.ResultBytes, call.Returns.Error
}

// FindInPath records its arguments and returns the values in FindInPathCall.Returns.
func (e *RawExec) FindInPath(plugin string, paths []string) (string, error) {
	call := &e.FindInPathCall
	call.Received.Plugin = plugin
	call.Received.Paths = paths
	return call.Returns.Path, call.Returns.Error
}

// VersionDecoder decodes replies to VERSION for tests.
type VersionDecoder struct {
	DecodeCall struct {
		Received struct {
			JSONBytes []byte
		}
		Returns struct {
			PluginInfo version.PluginInfo
			Error      error
		}
	}
}

// Decode records its argument and returns the values in DecodeCall.Returns.
func (d *VersionDecoder) Decode(jsonData []byte) (version.PluginInfo, error) {
	d.DecodeCall.Received.JSONBytes = jsonData
	return d.DecodeCall.Returns.PluginInfo, d.DecodeCall.Returns.Error
}
