package regular

import (
	"io/fs"
	"os"
	"syscall"
	"time"
)

// identity tells a file from another that takes its path, and from itself with other content.
type Identity struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Size   int64  `json:"size"`
	MTime  int64  `json:"mtime"` // nanoseconds since 1970
	CTime  int64  `json:"ctime"` // the same; unlike the others nobody can set it
}

// tick is longer than the steps in which any kernel lets the times of files go on (1/100 s with CONFIG_HZ=100).
const Tick = 12 * time.Millisecond

// identify returns the identity of the file that a path leads to. That of what is not there, or cannot be looked at, is zero.
func Identify(path string) Identity {
	info, err := os.Stat(path)
	if err != nil {
		return Identity{}
	}
	return IdentityOf(info)
}

func IdentityOf(info fs.FileInfo) Identity {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Identity{}
	}
	return Identity{Device: uint64(s.Dev), Inode: s.Ino, Size: s.Size, MTime: s.Mtim.Nano(), CTime: s.Ctim.Nano()}
}

// young reports whether the file was changed so shortly before that another change need not be seen in its identity. A time
// that lies in the future says nothing.
func (id Identity) Young(now time.Time) bool {
	age := now.UnixNano() - max(id.MTime, id.CTime)
	return -int64(Tick) < age && age < int64(Tick)
}
