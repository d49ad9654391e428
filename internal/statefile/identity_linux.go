package statefile

import (
	"io/fs"
	"syscall"
)

// IdentityOf returns the identity of a file.
func IdentityOf(info fs.FileInfo) Identity {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Identity{}
	}
	return Identity{Device: uint64(s.Dev), Inode: s.Ino, Size: s.Size, MTime: s.Mtim.Nano(),
		CTime: s.Ctim.Nano()}
}
