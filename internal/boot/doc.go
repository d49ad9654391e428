// Package boot tells what was written since the system started from what an earlier boot has left on disk: no network
// namespace survives a boot, so what such a file says about one holds no longer. It works on Linux only: on other systems
// there is no ID, no file names a boot, and none is from an earlier one.
package boot

// MaxID is how long the name of a boot may be, in bytes.
const MaxID = 64
