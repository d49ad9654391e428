package judge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenon-cni/tenon/internal/judge/plugins"
)

// ErrNoPlugin reports that a name is neither a path nor a plugin in the directories.
var ErrNoPlugin = errors.New("no such plugin")

// Find returns the paths of the programs that words name: paths of programs, directories of plugins,
// and names of plugins, which are searched in dirs. Of a directory it takes the executable files that
// answer VERSION; leftOut has the other ones, with the reason.
func Find(ctx context.Context, words, dirs []string) (paths, leftOut []string, err error) {
	for _, w := range words {
		info, err := os.Stat(w)
		switch {
		case err == nil && info.IsDir():
			found, others, err := inDirectory(ctx, w)
			if err != nil {
				return nil, nil, err
			}
			if len(found) == 0 {
				return nil, nil, fmt.Errorf("%s contains no plugin: %w", w, ErrNoPlugin)
			}
			paths, leftOut = append(paths, found...), append(leftOut, others...)
		case err == nil:
			paths = append(paths, w)
		case strings.ContainsRune(w, filepath.Separator) || !errors.Is(err, os.ErrNotExist):
			return nil, nil, err
		default:
			path, err := named(w, dirs)
			if err != nil {
				return nil, nil, err
			}
			paths = append(paths, path)
		}
	}
	return paths, leftOut, nil
}

// named returns the path of a plugin in the first directory that has it.
func named(name string, dirs []string) (string, error) {
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not in %s: %w", name, strings.Join(dirs, ", "), ErrNoPlugin)
}

func inDirectory(ctx context.Context, dir string) (paths, leftOut []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if reason, err := plugins.NoPlugin(ctx, path); err != nil {
			return nil, nil, err
		} else if reason != "" {
			leftOut = append(leftOut, e.Name()+": "+reason)
		} else {
			paths = append(paths, path)
		}
	}
	return paths, leftOut, nil
}
