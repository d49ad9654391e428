package config

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// WhatIsWrong returns the error in a list and the name that the list states nevertheless; nil if
// the list is valid.
func WhatIsWrong(b []byte) (e *FileError, name string) {
	_, err := cni.ParseList(b)
	if err == nil {
		return nil, ""
	}
	return fileError("x", b, err), statedName(b, ListFile)
}

// Tick is the resolution of file times.
const Tick = statefile.Tick

// Digests returns the number of cached digests.
func (p *Policy) Digests() int { return len(p.digests.known) }

// Merge is merge for tests.
func Merge(old *Snapshot, c *Catalog, now time.Time, min int, linger time.Duration) *Snapshot {
	return merge(old, c, now, Options{Min: min, Linger: linger})
}

// CannotRead is cannotRead for tests.
var CannotRead = cannotRead

// OpenWith is Open with a different watcher; nil means none.
func OpenWith(o Options, watch func(dirs []string) (bool, error)) (*Directory, error) {
	return open(o, func(chan<- struct{}) (watcher, error) {
		if watch == nil {
			return nil, unix.EMFILE
		}
		return fakeWatcher(watch), nil
	})
}

type fakeWatcher func(dirs []string) (bool, error)

func (w fakeWatcher) watch(dirs []string) (bool, error) { return w(dirs) }

func (w fakeWatcher) Close() error { return nil }
