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

// requireNetns explains that there is nothing at the path of the namespace.
func (t *attachment) requireNetns() error {
	_, err := os.Stat(t.netns)
	if !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err = cni.Errorf(cni.CodeUnknownContainer, "network namespace %s does not exist", t.netns)
	name := filepath.Base(t.netns)
	switch {
	case isPID(t.netnsArg):
		return hint(err, fmt.Sprintf("there is no process %s", t.netnsArg))
	case filepath.Dir(t.netns) != namedDir:
		return hint(err, "see which namespaces have a name: ip netns list")
	}
	return hint(t.didYouMean(err, t.netnsArg, namespaces()), "make it: "+commandLine("ip", []string{"netns", "add", name}))
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

// defaultID returns the container ID for the path of a namespace: the name of the namespace if it has one that can be an
// ID. Namespaces of processes are all called alike; theirs is made from the path.
func defaultID(path string) string {
	name := filepath.Base(path)
	if strings.HasPrefix(path, "/proc/") || cni.ValidateContainerID(name) != nil {
		return hashedID(path)
	}
	return name
}

// hashedID returns an ID made from the path of a namespace, as cnitool does. Before release 1.1 it was the default for all.
func hashedID(path string) string {
	sum := sha512.Sum512([]byte(path))
	return "tenon-" + hex.EncodeToString(sum[:10])
}

// sameNetns reports whether two paths lead to one namespace, also where that does not exist any more.
func sameNetns(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	x, errA := netnsPath(a)
	y, errB := netnsPath(b)
	if errA == nil && errB == nil && x == y {
		return true
	}
	one, errA := os.Stat(a)
	other, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(one, other)
}
