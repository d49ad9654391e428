//go:build race

package daemon_test

// raced says that the race detector is built in, whose memory is not the daemon's.
const raced = true
