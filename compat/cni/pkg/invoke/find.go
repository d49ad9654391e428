package invoke

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tenon-cni/tenon/invoke"
)

// FindInPath returns the path of a plugin: the first regular file of that name in the directories
// of paths, following symbolic links. The name may lack one of [ExecutableFileExtensions].
// FindInPath ignores the execute bit and empty elements of paths.
func FindInPath(plugin string, paths []string) (string, error) {
	switch {
	case plugin == "":
		return "", errors.New("no plugin name provided")
	case strings.ContainsRune(plugin, os.PathSeparator):
		return "", fmt.Errorf("invalid plugin name: %s", plugin)
	case len(paths) == 0:
		return "", errors.New("no paths provided")
	}
	for _, dir := range paths {
		for _, extension := range ExecutableFileExtensions {
			if path, err := invoke.Find([]string{dir}, plugin+extension); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("failed to find plugin %q in path %s", plugin, paths)
}
