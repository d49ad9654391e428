package netlink

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestTruncatedEvents: a message of each kind that cannot be decoded counts as lost, and nothing
// else.
func TestTruncatedEvents(t *testing.T) {
	t.Parallel()
	for _, kind := range []uint16{
		unix.RTM_NEWLINK, unix.RTM_DELADDR, unix.RTM_NEWROUTE, unix.RTM_DELROUTE, unix.RTM_DELNEIGH,
	} {
		data := Request{kind, 0, []byte{unix.AF_INET}}.appendTo(nil, 1)
		if got := readEvents(data); len(got) != 1 || got[0] != (Event{Lost: true}) {
			t.Errorf("kind %d: %+v", kind, got)
		}
	}
}
