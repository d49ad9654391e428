package filestore

import "github.com/tenon-cni/tenon/internal/ipam"

// Abandon closes a store like the kernel does for a killed process.
func Abandon(s ipam.Store) error {
	file := s.(*Store)
	file.dirty = false
	return file.Close()
}
