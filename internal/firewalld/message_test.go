package firewalld

import (
	"bytes"
	"testing"
)

// ok is an answer to the call with serial 2: the string "ok".
var ok = []byte("l\x02\x01\x01\x07\x00\x00\x00\x05\x00\x00\x00\x0f\x00\x00\x00" +
	"\x05\x01u\x00\x02\x00\x00\x00" + "\x08\x01g\x00\x01s\x00" + "\x00" + "\x02\x00\x00\x00ok\x00")

func TestReadMessage(t *testing.T) {
	a, err := readMessage(bytes.NewReader(ok))
	if err != nil || a.replyTo != 2 || a.signature != "s" || a.exception != "" {
		t.Fatalf("%+v, %v", a, err)
	}
	if text := a.body.text(); text != "ok" || a.body.failed {
		t.Errorf("text %q, failed %v", text, a.body.failed)
	}
	if a.body.text() != "" || !a.body.failed {
		t.Error("a second text was read")
	}
}

func FuzzReadMessage(f *testing.F) {
	f.Add(ok)
	f.Add(method{"a.b", "/a", "a.c", "D"}.message(1, []string{"x", "yz"}))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if a, err := readMessage(bytes.NewReader(b)); err == nil {
			a.body.text()
		}
	})
}
