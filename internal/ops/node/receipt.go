package node

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// receiptName is the file in the configuration directory that lists the installed files. Runtimes
// ignore it, because it has no extension.
const receiptName = ".tenon-node"

// receipt has the digests of the content that Install wrote, by path. A path has two digests while
// Install replaces the file.
type receipt map[string][]string

// readReceipt returns an empty receipt if there is none.
func readReceipt(dir string) (receipt, error) {
	path := filepath.Join(dir, receiptName)
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, cni.Errorf(cni.CodeIOFailure, "%w", err)
	}
	r := receipt{}
	for line := range strings.Lines(string(content)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ") // as sha256sum prints it
		if !ok || filepath.Base(name) != name {
			return nil, cni.Errorf(cni.CodeIOFailure, "%s: unknown line %q", path, line)
		}
		name = filepath.Join(dir, name)
		r[name] = append(r[name], sum)
	}
	return r, nil
}

// removeDrafts removes what killed installations and removals left: drafts of the receipt, and
// drafts and copies of the files that it lists. Install lists each file before it writes it.
func (r receipt) removeDrafts(dir string) error {
	err := statefile.RemoveDrafts(filepath.Join(dir, receiptName))
	for path := range r.paths() {
		saved := removing(path)
		err = errors.Join(err, statefile.RemoveDrafts(path), statefile.RemoveDrafts(saved))
		if e := os.Remove(saved); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return cni.Errorf(cni.CodeIOFailure, "%w", err)
	}
	return nil
}

// write writes the receipt, or removes it if it lists no file.
func (r receipt) write(dir string) error {
	path := filepath.Join(dir, receiptName)
	var b bytes.Buffer
	for _, name := range slices.Sorted(r.paths()) {
		for _, sum := range r[name] {
			fmt.Fprintf(&b, "%s  %s\n", sum, filepath.Base(name))
		}
	}
	var err error
	if b.Len() > 0 {
		err = statefile.Replace(path, b.Bytes(), 0o644, nil)
	} else if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return cni.Errorf(cni.CodeIOFailure, "%w", err)
	}
	return nil
}

func (r receipt) paths() iter.Seq[string] { return maps.Keys(r) }

func (r receipt) add(path string, content []byte) {
	if !r.has(path, content) {
		r[path] = append(slices.Clone(r[path]), digest(content))
	}
}

// has reports whether Install wrote this content.
func (r receipt) has(path string, content []byte) bool {
	return slices.Contains(r[path], digest(content))
}

// without returns the existing paths of r that are not in next and that have the content that
// Install wrote.
func (r receipt) without(next receipt) (paths []string) {
	for _, path := range slices.Sorted(r.paths()) {
		content, err := os.ReadFile(path)
		if _, stays := next[path]; !stays && err == nil && r.has(path, content) {
			paths = append(paths, path)
		}
	}
	return paths
}

func (r receipt) clone() receipt { return maps.Clone(r) }

func (r receipt) equal(other receipt) bool {
	return maps.EqualFunc(r, other, slices.Equal[[]string])
}

func digest(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }
