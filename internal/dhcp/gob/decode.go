package gob

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// Struct is a struct that was read: what was not zero, by the names of the fields. Values are bool, int64, uint64, []byte,
// string, []any or Struct.
type Struct map[string]any

// Text returns a string, "" if there is none.
func (s Struct) Text(name string) string {
	v, _ := s[name].(string)
	return v
}

// Int returns a number, 0 if there is none.
func (s Struct) Int(name string) int {
	v, _ := s[name].(int64)
	return int(v)
}

// Data returns bytes, nil if there are none.
func (s Struct) Data(name string) []byte {
	v, _ := s[name].([]byte)
	return v
}

// In returns a struct within, an empty one if there is none.
func (s Struct) In(name string) Struct {
	v, _ := s[name].(Struct)
	return v
}

// List returns the elements of a list that are structs.
func (s Struct) List(name string) (list []Struct) {
	all, _ := s[name].([]any)
	for _, v := range all {
		if one, ok := v.(Struct); ok {
			list = append(list, one)
		}
	}
	return list
}

// Decoder reads values of struct types.
type Decoder struct {
	r     *bufio.Reader
	types map[int]definedType
}

// definedType is a type that the stream has defined.
type definedType struct {
	kind   int // wireArray, …
	elem   int // of a list
	fields []definedField
}

type definedField struct {
	name string
	kind int
}

// NewDecoder returns a decoder for one stream.
func NewDecoder(r *bufio.Reader) *Decoder { return &Decoder{r: r, types: map[int]definedType{}} }

// maxTypes is how many types a stream may define.
const maxTypes = 256

// Decode reads the next value, which must be a struct. The error wraps [ErrMalformed], or is that of reading; [io.EOF] if the
// stream has ended.
func (d *Decoder) Decode() (Struct, error) {
	for {
		m, err := d.message()
		if err != nil {
			return nil, err
		}
		id := m.int()
		if id >= 0 {
			v := m.value(int(id), 0)
			s, ok := v.(Struct)
			if m.failed || !ok {
				return nil, fmt.Errorf("%w: value of type %d", ErrMalformed, id)
			}
			return s, nil
		}
		t := m.definition()
		if m.failed || len(d.types) >= maxTypes {
			return nil, fmt.Errorf("%w: definition of type %d", ErrMalformed, -id)
		}
		d.types[int(-id)] = t
	}
}

// message reads the next message.
func (d *Decoder) message() (*reading, error) {
	first, err := d.r.ReadByte()
	if err != nil {
		return nil, err
	}
	size := uint64(first)
	if first >= 128 {
		n := 256 - int(first)
		if n > 8 {
			return nil, fmt.Errorf("%w: length of %d bytes", ErrMalformed, n)
		}
		var b [8]byte
		if _, err := io.ReadFull(d.r, b[8-n:]); err != nil {
			return nil, err
		}
		size = binary.BigEndian.Uint64(b[:])
	}
	if size > maxMessage {
		return nil, fmt.Errorf("%w: message of %d bytes", ErrMalformed, size)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(d.r, b); err != nil {
		return nil, err
	}
	return &reading{b: b, types: d.types}, nil
}

// reading is a message that is read. Once it has failed everything in it is zero.
type reading struct {
	b      []byte
	types  map[int]definedType
	failed bool
}

func (m *reading) fail() {
	m.failed, m.b = true, nil
}

func (m *reading) uint() uint64 {
	if len(m.b) == 0 {
		m.fail()
		return 0
	}
	first := m.b[0]
	m.b = m.b[1:]
	if first < 128 {
		return uint64(first)
	}
	n := 256 - int(first)
	if n > 8 || n > len(m.b) {
		m.fail()
		return 0
	}
	var full [8]byte
	copy(full[8-n:], m.b[:n])
	m.b = m.b[n:]
	return binary.BigEndian.Uint64(full[:])
}

func (m *reading) int() int64 {
	v := m.uint()
	if v&1 != 0 {
		return ^int64(v >> 1)
	}
	return int64(v >> 1)
}

func (m *reading) bytes() []byte {
	n := m.uint()
	if n > uint64(len(m.b)) {
		m.fail()
		return nil
	}
	v := m.b[:n:n]
	m.b = m.b[n:]
	return v
}

// maxDepth is how deep values may be in one another.
const maxDepth = 16

func (m *reading) value(kind, depth int) any {
	if depth > maxDepth {
		m.fail()
		return nil
	}
	switch kind {
	case Bool:
		return m.uint() != 0
	case Int:
		return m.int()
	case Uint:
		return m.uint()
	case Bytes:
		return m.bytes()
	case String:
		return string(m.bytes())
	}
	t, ok := m.types[kind]
	switch {
	case ok && t.kind == wireStruct:
		s := Struct{}
		m.fields(func(i int) bool {
			if i >= len(t.fields) {
				return false
			}
			s[t.fields[i].name] = m.value(t.fields[i].kind, depth+1)
			return true
		})
		return s
	case ok && (t.kind == wireSlice || t.kind == wireArray):
		var list []any
		for n := m.uint(); n > 0 && !m.failed; n-- {
			list = append(list, m.value(t.elem, depth+1))
		}
		return list
	}
	m.fail()
	return nil
}

// fields calls each with the number of each field that is there, until it does not know one.
func (m *reading) fields(each func(i int) bool) {
	i := -1
	for !m.failed {
		step := m.uint()
		if step == 0 {
			return
		}
		if step > 1<<16 {
			m.fail()
			return
		}
		if i += int(step); !each(i) {
			m.fail()
		}
	}
}

// definition reads a wireType: which of its fields is there says what is defined.
func (m *reading) definition() (t definedType) {
	m.fields(func(i int) bool {
		t.kind = i
		switch i {
		case wireSlice, wireArray: // CommonType, Elem, and the length of an array
			m.fields(func(i int) bool {
				switch i {
				case 0:
					return m.common()
				case 1:
					t.elem = int(m.int())
				case 2:
					m.int()
				default:
					return false
				}
				return true
			})
		case wireStruct: // CommonType, []fieldType
			m.fields(func(i int) bool {
				switch i {
				case 0:
					return m.common()
				case 1:
					t.fields = m.definedFields()
				default:
					return false
				}
				return true
			})
		default:
			return false
		}
		return true
	})
	return t
}

// common reads a CommonType, of which nothing is needed.
func (m *reading) common() bool {
	m.fields(func(i int) bool {
		switch i {
		case 0:
			m.bytes()
		case 1:
			m.int()
		default:
			return false
		}
		return true
	})
	return true
}

func (m *reading) definedFields() (list []definedField) {
	for n := m.uint(); n > 0 && !m.failed; n-- {
		var f definedField
		m.fields(func(i int) bool {
			switch i {
			case 0:
				f.name = string(m.bytes())
			case 1:
				f.kind = int(m.int())
			default:
				return false
			}
			return true
		})
		list = append(list, f)
	}
	return list
}
