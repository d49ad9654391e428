package script

import (
	"encoding/json"
	"unicode/utf8"
)

// raw is a string of any bytes. In JSON, it is a string if it is valid UTF-8, else an object with the
// bytes in base64.
type raw string

type encoded struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON implements [json.Marshaler].
func (r raw) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(r)) {
		return json.Marshal(string(r))
	}
	return json.Marshal(encoded{[]byte(r)})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (r *raw) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var e encoded
		err := json.Unmarshal(b, &e)
		*r = raw(e.Base64)
		return err
	}
	return json.Unmarshal(b, (*string)(r))
}

func raws(list []string) (out []raw) {
	for _, s := range list {
		out = append(out, raw(s))
	}
	return out
}

func texts(list []raw) (out []string) {
	for _, r := range list {
		out = append(out, string(r))
	}
	return out
}

// The types below have the JSON of those in their names, where strings can hold any bytes.
type (
	plainFile File
	jsonFile  struct {
		plainFile
		Data raw `json:"data"`
	}
	plainPart Part
	jsonPart  struct {
		plainPart
		Literal raw `json:"literal,omitzero"`
	}
	plainCall Call
	jsonCall  struct {
		plainCall
		Args []raw `json:"args,omitzero"`
		Env  []raw `json:"env"`
	}
	plainRecorded Recorded
	jsonRecorded  struct {
		plainRecorded
		Env []raw `json:"env"`
	}
)

// MarshalJSON implements [json.Marshaler].
func (f File) MarshalJSON() ([]byte, error) {
	return json.Marshal(jsonFile{plainFile(f), raw(f.Data)})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (f *File) UnmarshalJSON(b []byte) error {
	var j jsonFile
	err := json.Unmarshal(b, &j)
	*f = File(j.plainFile)
	f.Data = string(j.Data)
	return err
}

// MarshalJSON implements [json.Marshaler].
func (p Part) MarshalJSON() ([]byte, error) {
	return json.Marshal(jsonPart{plainPart(p), raw(p.Literal)})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *Part) UnmarshalJSON(b []byte) error {
	var j jsonPart
	err := json.Unmarshal(b, &j)
	*p = Part(j.plainPart)
	p.Literal = string(j.Literal)
	return err
}

// MarshalJSON implements [json.Marshaler].
func (c Call) MarshalJSON() ([]byte, error) {
	return json.Marshal(jsonCall{plainCall(c), raws(c.Args), raws(c.Env)})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *Call) UnmarshalJSON(b []byte) error {
	var j jsonCall
	err := json.Unmarshal(b, &j)
	*c = Call(j.plainCall)
	c.Args, c.Env = texts(j.Args), texts(j.Env)
	return err
}

// MarshalJSON implements [json.Marshaler].
func (r Recorded) MarshalJSON() ([]byte, error) {
	return json.Marshal(jsonRecorded{plainRecorded(r), raws(r.Env)})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (r *Recorded) UnmarshalJSON(b []byte) error {
	var j jsonRecorded
	err := json.Unmarshal(b, &j)
	*r = Recorded(j.plainRecorded)
	r.Env = texts(j.Env)
	return err
}
