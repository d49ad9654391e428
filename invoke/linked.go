package invoke

import "sync/atomic"

// linker is the function of the last [RegisterLinked].
var linker atomic.Pointer[func(Process) Caller]

// RegisterLinked sets the function that [Linked] applies, for the whole program. The package
// plugins/all/link calls it when a program imports it. A later call replaces the function of an
// earlier one; nil removes it. RegisterLinked may be called at any time, and concurrently.
func RegisterLinked(link func(Process) Caller) {
	if link == nil {
		linker.Store(nil)
		return
	}
	linker.Store(&link)
}

// Linked returns a caller that runs the plugins which are linked into this program in this process,
// and executes all other plugins with p: the result of the function of [RegisterLinked]. It returns
// p if no function is registered.
func Linked(p Process) Caller {
	if link := linker.Load(); link != nil {
		return (*link)(p)
	}
	return p
}
