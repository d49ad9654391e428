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

// netnsPath returns the path of the namespace that an argument names: a path if it contains a
// slash, a process if it is a number, otherwise a name in /run/netns. It treats /var/run as /run
// (Filesystem Hierarchy Standard 3.0, 5.13), so that both give the same container ID.
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

// requireNetns returns an error if the path of the namespace does not exist.
func (t *attachment) requireNetns() error {
	_, err := os.Stat(t.netns)
	if !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err = cni.Errorf(cni.CodeUnknownContainer, "network namespace %s does not exist", t.netns)
	name := filepath.Base(t.netns)
	switch {
	case isPID(t.netnsArg):
		return hint(err, fmt.Sprintf("process %s does not exist", t.netnsArg))
	case filepath.Dir(t.netns) != namedDir:
		return hint(err, "list named namespaces: ip netns list")
	}
	return hint(
		t.didYouMean(err, t.netnsArg, namespaces()),
		"create it: "+commandLine("ip", []string{"netns", "add", name}),
	)
}

// namespaces returns the names of namespaces in /run/netns.
func namespaces() []string {
	entries, _ := os.ReadDir(namedDir)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// defaultID returns the container ID for the path of a namespace: the last element of the path or,
// if that is not a valid ID or the namespace belongs to a process, a hash of the path.
func defaultID(path string) string {
	name := filepath.Base(path)
	if strings.HasPrefix(path, "/proc/") || cni.ValidateContainerID(name) != nil {
		return hashedID(path)
	}
	return name
}

// hashedID returns an ID that is a hash of the path of a namespace, as cnitool does. Before release
// 1.1 it was the default for every namespace.
func hashedID(path string) string {
	sum := sha512.Sum512([]byte(path))
	return "tenon-" + hex.EncodeToString(sum[:10])
}

// sameNetns reports whether two paths name the same namespace, which may no longer exist.
func sameNetns(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	x, errA := netnsPath(a)
	y, errB := netnsPath(b)
	if errA == nil && errB == nil && x == y {
		return true
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
