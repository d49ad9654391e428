package statefile

import (
	"os"
	"time"
)

// Identity changes if the file at a path is replaced or its content changes. The versions of
// plugins are stored with it, so its JSON is an on-disk format. On Windows it consists only of the
// size and the time of the last write.
type Identity struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Size   int64  `json:"size"`
	MTime  int64  `json:"mtime"` // nanoseconds since 1970
	CTime  int64  `json:"ctime"` // the same; unlike the other fields, programs cannot set it
}

// Tick is longer than the resolution of file times in all kernels (1/100 s with CONFIG_HZ=100).
const Tick = 12 * time.Millisecond

// Identify returns the identity of the file at a path, or the zero identity if it cannot examine
// the file.
func Identify(path string) Identity {
	info, err := os.Stat(path)
	if err != nil {
		return Identity{}
	}
	return IdentityOf(info)
}

// Young reports whether the file changed so shortly before now that another change may leave its
// identity equal. Young ignores a time in the future.
func (id Identity) Young(now time.Time) bool {
	age := now.UnixNano() - max(id.MTime, id.CTime)
	return -int64(Tick) < age && age < int64(Tick)
}
