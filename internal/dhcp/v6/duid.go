package v6

import (
	"encoding/hex"
	"fmt"
)

// DUID identifies a client or server (RFC 8415 section 11). It has 3 to 130 bytes. Its text form is
// hexadecimal.
type DUID []byte

const (
	typeUUID         = 4
	minDUID, maxDUID = 3, 130
)

// UUID returns the DUID of a UUID (section 11.5, RFC 6355).
func UUID(u [16]byte) DUID { return append([]byte{0, typeUUID}, u[:]...) }

// valid reports whether the DUID has a length that section 11.1 allows.
func (d DUID) valid() bool { return len(d) >= minDUID && len(d) <= maxDUID }

// String returns the DUID in hexadecimal.
func (d DUID) String() string { return hex.EncodeToString(d) }

// MarshalText returns the DUID in hexadecimal.
func (d DUID) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText decodes hexadecimal.
func (d *DUID) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil {
		return fmt.Errorf("DUID %q: %w", text, err)
	}
	*d = b
	return nil
}
