// Package exefile writes programs that tests then execute. It does not build them.
package exefile

import (
	"os"
	"syscall"
)

// Write is [os.WriteFile] for a file that the calling process executes afterwards. No child process
// starts while the file is open for writing: a child would hold it open until it has executed its own
// program, and the kernel refuses to execute a file that is open for writing (ETXTBSY, execve(2),
// golang/go#22315).
func Write(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755)
}
