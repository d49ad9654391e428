//go:build unix

package statefile

import "os"

// Release releases the lock and removes the file if no process uses it. It unlocks first: of several processes that
// release at once the last finds itself alone. Closing alone would not do, as a process between fork and exec holds the
// file open.
func (l Lock) Release() {
	_ = l.set(gate, both, unlocked)
	if l.set(gate, both, Exclusive) == nil {
		if l.inPlace() {
			_ = os.Remove(l.Name())
		}
		_ = l.set(gate, both, unlocked)
	}
	_ = l.Close()
}
