package statefile

import "io/fs"

// IdentityOf returns the identity of a file.
func IdentityOf(info fs.FileInfo) Identity {
	return Identity{Size: info.Size(), MTime: info.ModTime().UnixNano()}
}
