package daemon

import (
	"bytes"
	"io"
	"net"
	"testing"
)

// endless is a connection with an endless stream of bytes.
type endless struct{ net.Conn }

func (endless) Read(b []byte) (int, error) { return len(b), nil }

func (endless) Write(b []byte) (int, error) { return len(b), nil }

// TestLimit checks that reads of any size return at most maxRequest bytes before an answer, and as
// many after it.
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
