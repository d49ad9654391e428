package records

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
)

// recordKind is the format of a record on disk. Records outlive the program that wrote them, so a
// released format never changes; a new format gets a new kind.
const recordKind = "tenonRecordV1"

// A file is one JSON object on one line: the kind, the checksum of the bytes of the third member,
// and the third member. unseal compares every byte, so it notices every change.
const (
	sealHead = `{"kind":"`
	sealSum  = `","sha256":"`
	sealBody = `","record":`
	sealTail = "}\n"
)

func seal(kind string, body []byte) []byte {
	sum := sha256.Sum256(body)
	return fmt.Appendf(nil, "%s%s%s%x%s%s%s", sealHead, kind, sealSum, sum, sealBody, body,
		sealTail)
}

// unseal returns the body of a sealed file. The code of an error is [cni.CodeDecodingFailure].
func unseal(kind string, b []byte) ([]byte, error) {
	before := len(sealHead) + len(kind) + len(sealSum) + 2*sha256.Size + len(sealBody)
	if len(b) >= before+len(sealTail) {
		if body := b[before : len(b)-len(sealTail)]; bytes.Equal(seal(kind, body), b) {
			return body, nil
		}
	}
	var other struct{ Kind string }
	if json.Unmarshal(b, &other) == nil && other.Kind != kind {
		return nil, cni.Errorf(cni.CodeDecodingFailure, "record: kind is %q, not %q", other.Kind,
			kind)
	}
	return nil, cni.Errorf(cni.CodeDecodingFailure, "record is damaged or incomplete")
}

// keyOf returns the key in a damaged record, if it is still legible. keyOf verifies it with the
// owner in the file name.
func keyOf(b []byte, o cni.Owner) (a cni.Attachment, ok bool) {
	_, body, _ := bytes.Cut(b, []byte(sealBody))
	d := json.NewDecoder(bytes.NewReader(body))
	var words []string
	for len(words) < 6 { // the first three members with their names, see wireRecord
		token, err := d.Token()
		if err != nil {
			return a, false
		}
		if word, ok := token.(string); ok {
			words = append(words, word)
		}
	}
	a = cni.Attachment{Network: words[1], Container: words[3], IfName: words[5]}
	return a, a.Validate() == nil && a.Owner() == o
}
