//go:build unix

package statefile

import "os"

// Release releases the lock and removes the file if no process uses it. It unlocks before it
// closes: when several processes release concurrently, the last one finds the file unused. Closing
// alone is not enough, because a process between fork and exec keeps the file open.
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
