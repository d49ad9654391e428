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

// CoarseTick is longer than the resolution of file times on file systems that store whole seconds,
// such as ext4 with inodes of 128 bytes, or even seconds, such as FAT.
const CoarseTick = 2*time.Second + Tick

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
func (id Identity) Young(now time.Time) bool { return id.Settles(now) > 0 }

// Settles returns the time from now until the file is no longer young.
func (id Identity) Settles(now time.Time) time.Duration {
	age := time.Duration(now.UnixNano() - max(id.MTime, id.CTime))
	if age <= -id.tick() {
		return 0
	}
	return max(id.tick()-age, 0)
}

// tick returns the resolution of the file's times. Times with nanoseconds are whole seconds only by
// rare chance.
func (id Identity) tick() time.Duration {
	if id.MTime%int64(time.Second) == 0 && id.CTime%int64(time.Second) == 0 {
		return CoarseTick
	}
	return Tick
}
