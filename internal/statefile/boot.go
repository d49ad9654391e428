package statefile

// MaxBootID is the maximum length of the name of a boot, in bytes. Only Linux names boots: on other systems there is no
// ID, no file names a boot, and no file is from an earlier one.
const MaxBootID = 64
