//go:build !linux

package journal

import "time"

// Stamp sets the time to now. Only Linux has boot IDs.
func (r *Record) Stamp() { r.Time = time.Now().UTC() }

// Parent returns "": the name of the parent process is not known.
func Parent() string { return "" }
