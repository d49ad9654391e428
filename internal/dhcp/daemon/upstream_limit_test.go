package daemon

import (
	"bytes"
	"io"
	"net"
	"testing"
)

// endless is a connection on which bytes never end.
type endless struct{ net.Conn }

func (endless) Read(b []byte) (int, error) { return len(b), nil }

func (endless) Write(b []byte) (int, error) { return len(b), nil }

// TestLimit: no read, however large, gets more than maxRequest before an answer, which allows as many
// again.
func TestLimit(t *testing.T) {
	t.Parallel()
	canceled := 0
	c := &bounded{Conn: endless{}, cancel: func() { canceled++ }}
	for round := range 2 {
		var got bytes.Buffer
		n, err := io.CopyBuffer(struct{ io.Writer }{&got}, c, make([]byte, 3<<20))
		if n != maxRequest || err == nil || canceled != round+1 {
			t.Errorf("read %d bytes, %v, canceled %d times", n, err, canceled)
		}
		if _, err := c.Write([]byte("answer")); err != nil {
			t.Fatal(err)
		}
	}
}
