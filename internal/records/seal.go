package records

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
)

// recordKind is the format of a record on disk. Records outlive the program that wrote them: once released, a format
// is never changed, only succeeded by another.
const recordKind = "tenonRecordV1"

// What is recorded on disk is one JSON object on one line: the kind, the checksum of the third member's bytes, and that.
// Every byte counts, so that none can change unnoticed.
const (
	sealHead = `{"kind":"`
	sealSum  = `","sha256":"`
	sealBody = `","record":`
	sealTail = "}\n"
)

func seal(kind string, body []byte) []byte {
	return fmt.Appendf(nil, "%s%s%s%x%s%s%s", sealHead, kind, sealSum, sha256.Sum256(body), sealBody, body, sealTail)
}

// unseal returns the body that seal was given.
func unseal(kind string, b []byte) ([]byte, error) {
	before := len(sealHead) + len(kind) + len(sealSum) + 2*sha256.Size + len(sealBody)
	if len(b) >= before+len(sealTail) {
		if body := b[before : len(b)-len(sealTail)]; bytes.Equal(seal(kind, body), b) {
			return body, nil
		}
	}
	var other struct{ Kind string }
	if json.Unmarshal(b, &other) == nil && other.Kind != kind {
		return nil, cni.Errorf(cni.CodeDecodingFailure, "record: kind is %q, not %q", other.Kind, kind)
	}
	return nil, cni.Errorf(cni.CodeDecodingFailure, "record: damaged, it is not as it was written")
}

// keyOf returns the key of the attachment that a damaged record was of, as far as that can still be read. The owner,
// which the name of the file tells, proves it right.
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
