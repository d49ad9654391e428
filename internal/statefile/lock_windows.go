package statefile

import (
	"os"

	"golang.org/x/sys/windows"
)

// set locks or unlocks bytes one by one, because only ranges that were locked can be unlocked. It
// returns [errBusy] if another open file has locked one of them.
func (l Lock) set(start, length int64, m LockMode) error {
	for b := start; b < start+length; b++ {
		at := &windows.Overlapped{Offset: uint32(b)}
		if m == unlocked {
			_ = windows.UnlockFileEx(windows.Handle(l.Fd()), 0, 1, 0, at) // it may not be locked
			continue
		}
		flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
		if m == Exclusive {
			flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
		}
		err := windows.LockFileEx(windows.Handle(l.Fd()), flags, 0, 1, 0, at)
		if err == windows.ERROR_LOCK_VIOLATION {
			return errBusy
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Inherited returns false: processes inherit no locks on Windows.
func (l Lock) Inherited() bool { return false }

// Release releases the lock and removes the file if no process uses it: Windows does not remove
// open files.
func (l Lock) Release() {
	_ = l.set(gate, both, unlocked)
	_ = l.Close()
	_ = os.Remove(l.Name())
}
