package firewalld

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// Of the header of a message (D-Bus specification, "Message Format"): its type, and the codes of its fields.
const (
	methodCall = 1

	fieldPath        = 1
	fieldInterface   = 2
	fieldMember      = 3
	fieldError       = 4
	fieldReply       = 5
	fieldDestination = 6
	fieldSignature   = 8
)

const (
	headerSize = 16      // up to the fields
	maxMessage = 1 << 20 // bytes that are read; firewalld answers with a word
)

var errMessage = errors.New("message of the bus cannot be read")

// message is a call of the method with strings.
func (m method) message(serial uint32, arguments []string) []byte {
	var body encoder
	for _, a := range arguments {
		body.text(a)
	}
	e := encoder{'l', methodCall, 0, 1} // little endian, no flags, version 1
	e.number(uint32(len(body)))
	e.number(serial)
	e.number(0) // length of the fields
	e.field(fieldPath, 'o', m.object)
	e.field(fieldDestination, 's', m.destination)
	e.field(fieldInterface, 's', m.iface)
	e.field(fieldMember, 's', m.member)
	if len(arguments) > 0 {
		e.align(8)
		signature := strings.Repeat("s", len(arguments))
		e = append(e, fieldSignature, 1, 'g', 0, byte(len(signature)))
		e = append(append(e, signature...), 0)
	}
	binary.LittleEndian.PutUint32(e[headerSize-4:], uint32(len(e)-headerSize))
	e.align(8)
	return append(e, body...)
}

// encoder is a part of a message that begins at a multiple of 8.
type encoder []byte

func (e *encoder) align(n int) {
	for len(*e)%n != 0 {
		*e = append(*e, 0)
	}
}

func (e *encoder) number(n uint32) {
	e.align(4)
	*e = binary.LittleEndian.AppendUint32(*e, n)
}

func (e *encoder) text(s string) {
	e.number(uint32(len(s)))
	*e = append(append(*e, s...), 0)
}

// field adds a field whose value is a variant of a text.
func (e *encoder) field(code, typ byte, value string) {
	e.align(8)
	*e = append(*e, code, 1, typ, 0)
	e.text(value)
}

// answer is what we read of a message.
type answer struct {
	replyTo   uint32 // serial of the call; 0 for what is none
	exception string // its name; empty for what is none
	signature string // of the body
	body      *decoder
}

func readMessage(r io.Reader) (a answer, err error) {
	header := make([]byte, headerSize)
	if _, err := io.ReadFull(r, header); err != nil {
		return a, err
	}
	var order binary.ByteOrder = binary.LittleEndian
	if header[0] == 'B' {
		order = binary.BigEndian
	}
	body, fields := uint64(order.Uint32(header[4:])), uint64(order.Uint32(header[headerSize-4:]))
	padded := (fields + 7) &^ 7
	if padded+body > maxMessage {
		return a, errMessage
	}
	rest := make([]byte, padded+body)
	if _, err := io.ReadFull(r, rest); err != nil {
		return a, err
	}
	d := &decoder{order: order, b: rest[:fields]}
	for d.align(8); d.at < len(d.b) && !d.failed; d.align(8) {
		a.decodeField(d)
	}
	if d.failed {
		return a, errMessage
	}
	a.body = &decoder{order: order, b: rest[padded:]}
	return a, nil
}

func (a *answer) decodeField(d *decoder) {
	code := d.byte()
	var number uint32
	var text string
	switch d.signature() {
	case "u":
		number = d.number()
	case "s", "o":
		text = d.text()
	case "g":
		text = d.signature()
	default:
		d.failed = true
	}
	switch code {
	case fieldReply:
		a.replyTo = number
	case fieldError:
		a.exception = text
	case fieldSignature:
		a.signature = text
	}
}

// decoder reads a part of a message that begins at a multiple of 8. Behind its end there are zeros, and it has failed.
type decoder struct {
	order  binary.ByteOrder
	b      []byte
	at     int
	failed bool
}

func (d *decoder) align(n int) { d.at = (d.at + n - 1) &^ (n - 1) }

func (d *decoder) take(n uint32) []byte {
	if uint64(d.at)+uint64(n) > uint64(len(d.b)) {
		d.failed = true
		return nil
	}
	d.at += int(n)
	return d.b[d.at-int(n) : d.at]
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) number() uint32 {
	d.align(4)
	if b := d.take(4); b != nil {
		return d.order.Uint32(b)
	}
	return 0
}

func (d *decoder) text() string {
	s := string(d.take(d.number()))
	d.take(1) // the zero behind it
	return s
}

func (d *decoder) signature() string {
	s := string(d.take(uint32(d.byte())))
	d.take(1)
	return s
}
