package journal

import (
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// errLarge reports a record that is larger than MaxRecord.
var errLarge = errors.New("record is too large for the journal")

// encode returns the bytes of a record on disk. It leaves out Keep if it is too large.
func (r Record) encode() ([]byte, error) {
	b := r.appendTo(make([]byte, 0, 1<<10))
	if len(b) > MaxRecord && r.Keep != nil {
		r.Keep = nil
		b = r.appendTo(b[:0])
	}
	if len(b) > MaxRecord {
		return nil, fmt.Errorf("encode journal record: %w", errLarge)
	}
	sum := checksum(b[1:])
	b = append(append(b, sumHead...), sum...)
	return append(b, sumTail...), nil
}

// object appends a JSON object. Unlike encoding/json it needs no preparation for each type, which
// would cost a plugin process twice as much as all the rest of a record.
type object struct {
	b     []byte
	begun bool // has a member
}

// key appends the name of a member.
func (o *object) key(name string) {
	if o.begun {
		o.b = append(o.b, ',')
	}
	o.begun = true
	o.b = append(append(append(o.b, '"'), name...), `":`...)
}

// text appends a member unless the value is empty.
func (o *object) text(name, value string) {
	if value != "" {
		o.key(name)
		o.b = appendString(o.b, value)
	}
}

// number appends a member.
func (o *object) number(name string, value int64) {
	o.key(name)
	o.b = strconv.AppendInt(o.b, value, 10)
}

// positive appends a member unless the value is 0.
func (o *object) positive(name string, value int64) {
	if value != 0 {
		o.number(name, value)
	}
}

// list appends a member with a value for each index.
func (o *object) list(name string, n int, value func(i int)) {
	o.key(name)
	o.b = append(o.b, '[')
	for i := range n {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		value(i)
	}
	o.b = append(o.b, ']')
}

// objects appends a list of objects unless it is empty.
func (o *object) objects(name string, n int, members func(i int)) {
	if n == 0 {
		return
	}
	o.list(name, n, func(i int) {
		o.b, o.begun = append(o.b, '{'), false
		members(i)
		o.b, o.begun = append(o.b, '}'), true
	})
}

// appendTo appends the separator and the record without its checksum and the last brace.
func (r *Record) appendTo(b []byte) []byte {
	o := object{b: append(b, separator, '{')}
	o.number("v", Version)
	o.text("time", r.Time.UTC().Format(time.RFC3339Nano))
	o.text("boot", r.Boot)
	o.positive("uptime", int64(r.Uptime))
	o.text("kind", string(r.Kind))
	o.text("verb", string(r.Verb))
	o.text("network", r.Network)
	o.text("container", r.Container)
	o.text("ifname", r.IfName)
	o.positive("code", int64(r.Code))
	o.text("error", r.Error)
	o.number("duration", int64(r.Duration))
	o.objects("plugins", len(r.Plugins), func(i int) {
		o.text("type", r.Plugins[i].Type)
		o.positive("duration", int64(r.Plugins[i].Duration))
		o.positive("code", int64(r.Plugins[i].Code))
	})
	if len(r.Addresses) > 0 {
		o.list("addresses", len(r.Addresses), func(i int) {
			o.b = appendString(o.b, r.Addresses[i].String())
		})
	}
	o.objects("interfaces", len(r.Interfaces), func(i int) {
		o.text("name", r.Interfaces[i].Name)
		o.text("mac", r.Interfaces[i].MAC)
		if r.Interfaces[i].Container {
			o.key("container")
			o.b = append(o.b, "true"...)
		}
	})
	o.objects("ports", len(r.Ports), func(i int) {
		o.positive("hostPort", int64(r.Ports[i].HostPort))
		o.positive("containerPort", int64(r.Ports[i].ContainerPort))
		o.text("protocol", r.Ports[i].Protocol)
		o.text("hostIP", r.Ports[i].HostIP)
	})
	o.text("netns", r.Netns)
	if r.Keep != nil {
		o.list("keep", len(r.Keep), func(i int) { o.b = appendString(o.b, r.Keep[i]) })
	}
	o.text("runtime", r.Runtime)
	o.number("pid", int64(r.PID))
	return o.b
}

// appendString appends a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
		default:
			b = utf8.AppendRune(b, c)
		}
	}
	return append(b, '"')
}
