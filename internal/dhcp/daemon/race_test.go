//go:build race

package daemon_test

// raced reports that the race detector is built in, which adds to the memory of the daemon.
const raced = true
