package statefile

import (
	"os"
	"time"
)

// Identity changes if another file takes the path of a file, or if the content of the file changes. Versions of plugins are
// stored with it, so its JSON is an on-disk format. On Windows it is only the size and the time of the last write.
type Identity struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Size   int64  `json:"size"`
	MTime  int64  `json:"mtime"` // nanoseconds since 1970
	CTime  int64  `json:"ctime"` // the same; unlike the others no program can set it
}

// Tick is longer than the steps in which any kernel lets the times of files go on (1/100 s with CONFIG_HZ=100).
const Tick = 12 * time.Millisecond

// Identify returns the identity of the file that a path leads to; the zero identity if it cannot look at the file.
func Identify(path string) Identity {
	info, err := os.Stat(path)
	if err != nil {
		return Identity{}
	}
	return IdentityOf(info)
}

// Young reports whether the file was changed so shortly before now that its identity may not show another change. Young
// ignores a time in the future.
func (id Identity) Young(now time.Time) bool {
	age := now.UnixNano() - max(id.MTime, id.CTime)
	return -int64(Tick) < age && age < int64(Tick)
}
