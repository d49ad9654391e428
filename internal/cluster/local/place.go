package local

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/statefile"
)

// A copy of the node's directory must not allocate: the original does. Nor may a directory that was
// emptied, because addresses of its blocks are in use without a reservation. The file "place"
// shows both: its content disappears with the directory, and the inode and time of birth of a
// copy differ.

func (s *Store) placePath() string { return s.path("place") }

// Place identifies the directory, or is "" if it has not been marked.
func (s *Store) Place() (string, error) {
	content, err := statefile.ReadFile(s.placePath())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var x unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, s.placePath(), 0, unix.STATX_INO|unix.STATX_BTIME, &x)
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.placePath(), err)
	}
	// A file system without times of birth leaves them zero.
	return fmt.Sprintf("%s-%d-%d.%09d", strings.TrimSpace(string(content)), x.Ino, x.Btime.Sec,
		x.Btime.Nsec), nil
}

// MarkPlace marks the directory and returns its new [Store.Place].
func (s *Store) MarkPlace() (string, error) {
	if err := replace(s.placePath(), []byte(rand.Text()+"\n")); err != nil {
		return "", err
	}
	return s.Place()
}

// CopiedHint returns what an operator of a node can do about [ErrCopied].
func CopiedHint(node string) string {
	return "if the directory is a copy, run `tenon-cluster node reset` here; if its files were removed " +
		"or moved, end all containers of this node, run `tenon-cluster node reset`, and then " +
		"`tenon-cluster release --node " + node + "`"
}

// CheckPlace returns an error that wraps [ErrCopied] if the directory is not the one that place
// identifies. An empty place identifies every directory.
func (s *Store) CheckPlace(place string) error {
	if place == "" {
		return nil
	}
	present, err := s.Place()
	if err == nil && present != place {
		err = fmt.Errorf("%s: %w", s.o.Dir, ErrCopied)
	}
	return err
}
