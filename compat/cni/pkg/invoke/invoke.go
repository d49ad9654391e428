package invoke

import (
	"context"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"io"
)

var ExecutableFileExtensions []string

type Args struct {
	Command       string
	ContainerID   string
	IfName        string
	NetNS         string
	Path          string
	PluginArgs    [][2]string
	PluginArgsStr string
}

type CNIArgs interface {
	AsEnv() []string
}

type DefaultExec struct {
	version.PluginDecoder
	*RawExec
}

type DelegateArgs struct {
	Command string
}

type Exec interface {
	Decode(jsonBytes []byte) (version.PluginInfo, error)
	ExecPlugin(ctx context.Context, pluginPath string, stdinData []byte, environ []string) ([]byte, error)
	FindInPath(plugin string, paths []string) (string, error)
}

type RawExec struct {
	Stderr io.Writer
}

func ArgsFromEnv() CNIArgs { panic("not implemented") }

func DelegateAdd(ctx context.Context, delegatePlugin string, netconf []byte, exec Exec) (types.Result, error) {
	panic("not implemented")
}

func DelegateCheck(ctx context.Context, delegatePlugin string, netconf []byte, exec Exec) error {
	panic("not implemented")
}

func DelegateDel(ctx context.Context, delegatePlugin string, netconf []byte, exec Exec) error {
	panic("not implemented")
}

func DelegateGC(ctx context.Context, delegatePlugin string, netconf []byte, exec Exec) error {
	panic("not implemented")
}

func DelegateStatus(ctx context.Context, delegatePlugin string, netconf []byte, exec Exec) error {
	panic("not implemented")
}

func ExecPluginWithResult(ctx context.Context, pluginPath string, netconf []byte, args CNIArgs, exec Exec) (types.Result, error) {
	panic("not implemented")
}

func ExecPluginWithoutResult(ctx context.Context, pluginPath string, netconf []byte, args CNIArgs, exec Exec) error {
	panic("not implemented")
}

func FindInPath(plugin string, paths []string) (string, error) { panic("not implemented") }

func GetVersionInfo(ctx context.Context, pluginPath string, exec Exec) (version.PluginInfo, error) {
	panic("not implemented")
}

func (r *Args) AsEnv() []string { panic("not implemented") }

func (r *DelegateArgs) AsEnv() []string { panic("not implemented") }

func (r *RawExec) ExecPlugin(ctx context.Context, pluginPath string, stdinData []byte, environ []string) ([]byte, error) {
	panic("not implemented")
}

func (r *RawExec) FindInPath(plugin string, paths []string) (string, error) { panic("not implemented") }
