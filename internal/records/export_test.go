package records

import "encoding/json"

// DecodeRecord and DecodeCached read a file of ours and a file of libcni.
var (
	DecodeRecord = decodeRecord
	DecodeCached = decodeCached
)

// Encode returns the record as it is stored.
func (r *Record) Encode() ([]byte, error) { return r.encode() }

// DecodeVersions returns what a file of answers to VERSION says, by path of the executable.
func DecodeVersions(b []byte) (map[string][]string, error) {
	entries, err := decodeVersions(b)
	versions := map[string][]string{}
	for path, e := range entries {
		versions[path] = e.Versions
	}
	return versions, err
}

// EncodeVersions writes the file anew.
func EncodeVersions(b []byte) []byte {
	entries, err := decodeVersions(b)
	if err != nil {
		panic(err)
	}
	out, err := json.Marshal(wireVersions{versionsKind, entries})
	if err != nil {
		panic(err)
	}
	return out
}

// Seal seals the body of a record.
func Seal(body []byte) []byte { return seal(recordKind, body) }

// ReencodeDue decodes a file about unfinished operations and encodes it again.
func ReencodeDue(b []byte) ([]byte, error) {
	d, err := decodeDue(b)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(d)
	return seal(dueKind, body), err
}

// SealDue seals the body of a file about unfinished operations.
func SealDue(body []byte) []byte { return seal(dueKind, body) }
