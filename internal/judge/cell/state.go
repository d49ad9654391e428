package cell

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

func mkdirFor(path string) error { return os.MkdirAll(filepath.Dir(path), 0o755) }

// snapshot reads the state of the cell.
func (w *world) snapshot(ctx context.Context) (*script.Snapshot, error) {
	s := &script.Snapshot{Files: map[string]script.FileState{}, Containers: map[string]string{}}
	entries, err := os.ReadDir(script.Netns)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		path := script.Netns + "/" + e.Name()
		var st unix.Stat_t
		var fs unix.Statfs_t
		if unix.Stat(path, &st) != nil || unix.Statfs(path, &fs) != nil || fs.Type != unix.NSFS_MAGIC {
			continue
		}
		paths = append(paths, path)
		s.Containers[e.Name()] = fmt.Sprintf("%d:%d", st.Dev, st.Ino)
	}
	s.Host, err = host.Read(ctx, host.Options{Paths: paths, OnlyPaths: true, AllSettings: true, Partial: true, Files: &w.settings})
	if err != nil {
		return nil, err
	}
	for _, dir := range append([]string{"/dev"}, writable...) {
		if err := files(s.Files, os.DirFS(dir), dir); err != nil {
			return nil, err
		}
	}
	return s, files(s.Files, os.DirFS(fmt.Sprintf("/proc/self/fd/%d", w.layer.Fd())), "/etc")
}

// files adds the files of a file system to a map.
func files(to map[string]script.FileState, system fs.FS, dir string) error {
	return fs.WalkDir(system, ".", func(name string, d fs.DirEntry, err error) error {
		path := filepath.Join(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a process is still running
		}
		if err != nil { // for example, a path that is too long
			to[path] = script.FileState{Mode: err.Error()}
			return nil
		}
		if path == script.Dir || path == script.Netns {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return nil // removed meanwhile
		}
		st := script.FileState{Mode: info.Mode().String()}
		if info.Mode().IsRegular() {
			st.Size = info.Size()
			st.Digest = digest(system, name)
		}
		to[path] = st
		return nil
	})
}

// digest returns a digest of the first bytes of a file.
func digest(system fs.FS, name string) string {
	f, err := system.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, limit)); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
