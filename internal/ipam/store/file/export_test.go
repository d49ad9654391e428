package file

import "github.com/tenon-cni/tenon/internal/ipam/store"

// Abandon closes a store as the kernel does for a killed process.
func Abandon(s store.Store) error {
	file := s.(*Store)
	file.dirty = false
	return file.Close()
}
