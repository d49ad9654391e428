// Package stress runs many attachments at once through the runtime library and executed plugins, and expects that
// nothing is refused, nothing is given out twice and nothing stays. It measures nothing: that is test/bench.
package stress
