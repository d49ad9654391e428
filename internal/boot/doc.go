// Package boot distinguishes files that were written since the system started from files of an earlier boot. No network
// namespace survives a boot, so a file of an earlier boot describes namespaces that no longer exist. It works on Linux only: on other systems
// there is no ID, no file names a boot, and none is from an earlier one.
package boot

// MaxID is how long the name of a boot may be, in bytes.
const MaxID = 64
