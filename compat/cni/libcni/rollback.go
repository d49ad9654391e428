package libcni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tenon-cni/tenon/network/cache"
)

// rollbackVariable is the environment variable that switches rollback off.
const rollbackVariable = "TENON_ROLLBACK"

const (
	// rollbackLimit is the time limit of a rollback.
	rollbackLimit = time.Minute
	// lateRollbackLimit is the limit if the context of the ADD has ended: the caller's time is over,
	// and the plugin that was stopped may hang on DEL too. It comes last then.
	lateRollbackLimit = 5 * time.Second
)

// rollbackError is the error of an ADD if its rollback failed too. It unwraps to the plugin's
// error, as without rollback; [errors.Is] and [errors.As] also find the errors of the rollback.
type rollbackError struct {
	add, rollback error
}

func (e *rollbackError) Error() string {
	return e.add.Error() + "; rollback failed: " + e.rollback.Error()
}

func (e *rollbackError) Unwrap() error {
	if cause := errors.Unwrap(e.add); cause != nil {
		return cause
	}
	return e.add
}

func (e *rollbackError) Is(target error) bool {
	return errors.Is(e.add, target) || errors.Is(e.rollback, target)
}

func (e *rollbackError) As(target any) bool {
	return errors.As(e.add, target) || errors.As(e.rollback, target)
}

// rollBack runs DEL of the plugins that ran during an ADD that failed with an error, and returns
// that error together with its own.
func (c *CNIConfig) rollBack(
	ctx context.Context, n chain, ran []*PluginConfig, rt *RuntimeConf, failure error,
) error {
	if len(ran) == 0 || os.Getenv(rollbackVariable) == "off" {
		return failure
	}
	used, err := c.inUse(n.name, rt)
	if used {
		return failure
	}
	if err == nil {
		order, share := slices.Clone(ran), rollbackLimit/time.Duration(len(ran))
		slices.Reverse(order)
		if ctx.Err() != nil {
			order = append(order[1:], order[0])
			share = lateRollbackLimit / time.Duration(len(ran))
		}
		for _, plugin := range order {
			k := call{command: "DEL", plugin: plugin, rt: rt}
			if delErr := c.runFor(ctx, share, n, k); delErr != nil {
				err = both(err, n.failure(plugin, "delete", delErr))
			}
		}
	}
	if err == nil || err.Error() == failure.Error() {
		return failure // a single plugin that fails with the same error on both verbs
	}
	return &rollbackError{add: failure, rollback: err}
}

// runFor runs a call for at most a time, even if ctx has ended.
func (c *CNIConfig) runFor(ctx context.Context, limit time.Duration, n chain, k call) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	return c.run(ctx, n, k)
}

// both joins two errors in one line. The first one may be nil.
func both(first, second error) error {
	if first == nil {
		return second
	}
	return fmt.Errorf("%w; %w", first, second)
}

// inUse reports whether the cache has an attachment of the container with the interface name, in
// any network. The name alone decides for a file that does not state its attachment.
func (c *CNIConfig) inUse(network string, rt *RuntimeConf) (bool, error) {
	paths, err := c.cache(rt).Files()
	if errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("failed to list cached attachments: %w", err)
	}
	suffix := "-" + rt.ContainerID + "-" + rt.IfName
	for _, path := range paths {
		if !strings.HasSuffix(filepath.Base(path), suffix) {
			continue
		}
		entry, err := cache.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil ||
			entry.Attachment.Container == rt.ContainerID && entry.Attachment.IfName == rt.IfName {
			return true, nil
		}
	}
	return false, nil
}
