//go:build unix && !linux

package statefile

import "golang.org/x/sys/unix"

// set locks or unlocks the whole file for the byte held, and does nothing for the gate alone. It
// returns [errBusy] if another open file has locked the file.
func (l Lock) set(start, length int64, m LockMode) error {
	if start == gate && length == 1 {
		return nil
	}
	how := [...]int{Shared: unix.LOCK_SH, Exclusive: unix.LOCK_EX, unlocked: unix.LOCK_UN}[m]
	err := unix.Flock(int(l.Fd()), how|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return errBusy
	}
	return err
}

// Inherited returns false, because the package cannot find out on this system.
func (l Lock) Inherited() bool { return false }
