package gob_test

import (
	"bufio"
	"bytes"
	stdgob "encoding/gob"
	"errors"
	"io"
	"math"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/dhcp/gob"
)

type simple struct {
	Name  string
	Seq   uint64
	N     int
	Data  []byte
	Truth bool
	Empty string
}

// TestEncode: the standard library reads what is written, several values of several types in one stream.
func TestEncode(t *testing.T) {
	var b bytes.Buffer
	e := gob.NewEncoder(&b)
	want := []simple{
		{"first", 1, -1, []byte{0, 255}, true, ""},
		{"", 0, math.MinInt32, nil, false, "x"},
		{"third", math.MaxUint64, 127, bytes.Repeat([]byte("long"), 100), false, ""},
	}
	for _, s := range want {
		err := e.Encode("simple", gob.Field{Name: "Name", Value: s.Name}, gob.Field{Name: "Seq", Value: s.Seq}, gob.Field{Name: "N", Value: s.N},
			gob.Field{Name: "Data", Value: s.Data}, gob.Field{Name: "Truth", Value: s.Truth}, gob.Field{Name: "Empty", Value: s.Empty})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Encode("other", gob.Field{Name: "Method", Value: "M"}); err != nil {
			t.Fatal(err)
		}
	}
	d := stdgob.NewDecoder(&b)
	for _, w := range want {
		var got simple
		var other struct{ Method string }
		if err := errors.Join(d.Decode(&got), d.Decode(&other)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(w, got); diff != "" || other.Method != "M" {
			t.Errorf("-want +got:\n%s %v", diff, other)
		}
	}
	if err := e.Encode("wrong", gob.Field{Name: "F", Value: 1.5}); err == nil {
		t.Error("a float was written")
	}
}

// TestEncodeNested: structs within, and lists of them, also where the first value has none.
func TestEncodeNested(t *testing.T) {
	type point struct{ X, Y int }
	type shape struct {
		Name   string
		Center point
		Points []point
	}
	at := func(x, y int) gob.Object {
		return gob.Object{Name: "point", Fields: []gob.Field{{Name: "X", Value: x}, {Name: "Y", Value: y}}}
	}
	want := []shape{{Name: "empty"}, {"line", point{1, 0}, []point{{1, 2}, {0, 0}, {-3, 4}}}, {"far", point{1 << 40, -1}, nil}}
	var b bytes.Buffer
	e := gob.NewEncoder(&b)
	for _, s := range want {
		points := gob.List{Of: at(0, 0)}
		for _, p := range s.Points {
			points.Items = append(points.Items, at(p.X, p.Y))
		}
		err := e.Encode("shape", gob.Field{Name: "Name", Value: s.Name}, gob.Field{Name: "Center", Value: at(s.Center.X, s.Center.Y)}, gob.Field{Name: "Points", Value: points})
		if err != nil {
			t.Fatal(err)
		}
	}
	d := stdgob.NewDecoder(&b)
	for _, w := range want {
		var got shape
		if err := d.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(w, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

type nested struct {
	Version string
	List    []entry
	Numbers []int
	Fixed   [2]uint
}

type entry struct {
	Index   *int
	Address net.IPNet
	Scope   int
}

// TestDecode reads what the standard library writes: the types of a result.
func TestDecode(t *testing.T) {
	one := 1
	var b bytes.Buffer
	e := stdgob.NewEncoder(&b)
	address := net.IPNet{IP: net.IPv4(10, 1, 2, 3), Mask: net.CIDRMask(24, 32)}
	for range 2 {
		if err := e.Encode(nested{"1.1.0", []entry{{&one, address, -7}, {}}, []int{3, -3, 300}, [2]uint{1, 2}}); err != nil {
			t.Fatal(err)
		}
	}
	d := gob.NewDecoder(bufio.NewReader(&b))
	for range 2 {
		got, err := d.Decode()
		if err != nil {
			t.Fatal(err)
		}
		list := got.List("List")
		if got.Text("Version") != "1.1.0" || len(list) != 2 || list[0].Int("Index") != 1 || list[0].Int("Scope") != -7 ||
			!bytes.Equal(list[0].In("Address").Data("IP"), address.IP) || !bytes.Equal(list[0].In("Address").Data("Mask"), address.Mask) {
			t.Errorf("%v", got)
		}
		if diff := cmp.Diff([]any{int64(3), int64(-3), int64(300)}, got["Numbers"]); diff != "" {
			t.Error(diff)
		}
		if list[1].Text("Version") != "" || list[1].In("Address").Data("IP") != nil || len(list[1].List("none")) != 0 {
			t.Errorf("%v", list[1])
		}
	}
	if _, err := d.Decode(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// FuzzDecode: no stream makes the decoder panic, or read without end.
func FuzzDecode(f *testing.F) {
	var b bytes.Buffer
	one := 1
	if err := stdgob.NewEncoder(&b).Encode(nested{"1", []entry{{&one, net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(8, 32)}, 1}}, []int{1}, [2]uint{1, 1}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, stream []byte) {
		d := gob.NewDecoder(bufio.NewReader(bytes.NewReader(stream)))
		for {
			if _, err := d.Decode(); err != nil {
				if !errors.Is(err, gob.ErrMalformed) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				return
			}
		}
	})
}
