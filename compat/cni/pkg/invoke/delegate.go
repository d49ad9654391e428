package invoke

import (
	"context"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/types"
)

// DelegateAdd calls ADD of another plugin for a plugin: with the environment of this process except
// CNI_COMMAND, and with a plugin that is looked up in CNI_PATH. A nil exec means a [DefaultExec].
// See [ExecPluginWithResult] and [FindInPath] for errors.
func DelegateAdd(
	ctx context.Context, delegatePlugin string, netconf []byte, exec Exec,
) (types.Result, error) {
	exec = orDefault(exec)
	path, err := findDelegate(delegatePlugin, exec)
	if err != nil {
		return nil, err
	}
	return ExecPluginWithResult(ctx, path, netconf, &DelegateArgs{Command: "ADD"}, exec)
}

// DelegateCheck calls CHECK of another plugin, as [DelegateAdd] calls ADD.
func DelegateCheck(ctx context.Context, delegatePlugin string, netconf []byte, exec Exec) error {
	return delegate(ctx, delegatePlugin, netconf, "CHECK", exec)
}

// DelegateDel calls DEL of another plugin, as [DelegateAdd] calls ADD.
func DelegateDel(ctx context.Context, delegatePlugin string, netconf []byte, exec Exec) error {
	return delegate(ctx, delegatePlugin, netconf, "DEL", exec)
}

// DelegateStatus calls STATUS of another plugin, as [DelegateAdd] calls ADD.
func DelegateStatus(ctx context.Context, delegatePlugin string, netconf []byte, exec Exec) error {
	return delegate(ctx, delegatePlugin, netconf, "STATUS", exec)
}

// DelegateGC calls GC of another plugin, as [DelegateAdd] calls ADD.
func DelegateGC(ctx context.Context, delegatePlugin string, netconf []byte, exec Exec) error {
	return delegate(ctx, delegatePlugin, netconf, "GC", exec)
}

func delegate(ctx context.Context, plugin string, netconf []byte, verb string, exec Exec) error {
	exec = orDefault(exec)
	path, err := findDelegate(plugin, exec)
	if err != nil {
		return err
	}
	return ExecPluginWithoutResult(ctx, path, netconf, &DelegateArgs{Command: verb}, exec)
}

func findDelegate(plugin string, exec Exec) (string, error) {
	return exec.FindInPath(plugin, filepath.SplitList(os.Getenv("CNI_PATH")))
}
