//go:build amd64

package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

const markerPrefix = "mark-"

// isMarker reports whether the test binary was started as a marker plugin.
func isMarker(name string) bool { return strings.HasPrefix(name, markerPrefix) }

func mark(name string) int {
	return plugin.Main(plugin.Define[markerConf](plugin.Info{Name: name}, marker{}), invoke.Process{}, "test")
}

// marker is a chained plugin whose state can be seen: a file for each attachment.
type marker struct{}

type markerConf struct {
	plugin.Common
	Dir string `json:"dir"`
}

type markerCall = plugin.Call[markerConf]

func markOf(c *markerCall, o cni.Owner) string {
	return filepath.Join(c.Conf.Dir, fmt.Sprintf("%s-%s", c.Type, o))
}

func (marker) Add(_ context.Context, c *markerCall) (*cni.Result, error) {
	return c.Prev, os.WriteFile(markOf(c, c.Attachment().Owner()), nil, 0o600)
}

func (marker) Del(_ context.Context, c *markerCall) error {
	if err := os.Remove(markOf(c, c.Attachment().Owner())); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (marker) Check(_ context.Context, c *markerCall) error {
	_, err := os.Stat(markOf(c, c.Attachment().Owner()))
	return err
}
