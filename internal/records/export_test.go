package records

import "encoding/json"

// DecodeRecord and DecodeCached decode a file of Tenon and a file of libcni.
var (
	DecodeRecord = decodeRecord
	DecodeCached = decodeCached
)

// Encode returns the record as it is stored.
func (r *Record) Encode() ([]byte, error) { return r.encode() }

// DecodeVersions returns the content of a file of replies to VERSION, by path of the binary.
func DecodeVersions(b []byte) (map[string][]string, error) {
	entries, err := decodeVersions(b)
	versions := map[string][]string{}
	for path, e := range entries {
		versions[path] = e.Versions
	}
	return versions, err
}

// EncodeVersions encodes the file again.
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
