package cli

import (
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

// namedDir is where ip-netns(8) keeps namespaces by name.
const namedDir = "/run/netns"

// netnsPath returns the path of the namespace that an argument means: a path if it has a slash, a process if it is a
// number, else a name below /run/netns. /var/run is the same as /run (Filesystem Hierarchy Standard 3.0, 5.13), so
// that both give the same container ID.
func netnsPath(arg string) (string, error) {
	switch {
	case isPath(arg):
		path, err := filepath.Abs(arg)
		if rest, ok := strings.CutPrefix(path, "/var/run/"); ok {
			path = "/run/" + rest
		}
		return path, err
	case isPID(arg):
		return "/proc/" + arg + "/ns/net", nil
	default:
		return filepath.Join(namedDir, arg), nil
	}
}

func isPID(arg string) bool { return arg != "" && strings.Trim(arg, "0123456789") == "" }

// requireNetns explains that there is nothing at the path of a namespace.
func requireNetns(arg, path string) error {
	_, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err = cni.Errorf(cni.CodeUnknownContainer, "network namespace %s does not exist", path)
	switch {
	case isPID(arg):
		return hint(err, fmt.Sprintf("there is no process %s", arg))
	case isPath(arg):
		return err
	}
	return hint(didYouMean(err, arg, namespaces()), fmt.Sprintf("ip netns add %s makes one", arg))
}

// namespaces are those that have names.
func namespaces() []string {
	entries, _ := os.ReadDir(namedDir)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// containerID makes an ID of the path of a namespace, as cnitool does.
func containerID(path string) string {
	sum := sha512.Sum512([]byte(path))
	return "tenon-" + hex.EncodeToString(sum[:10])
}
