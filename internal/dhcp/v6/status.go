package v6

import (
	"encoding/binary"
	"fmt"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

// Codes of the status that a server gives (RFC 8415 section 21.13).
const (
	success uint16 = iota
	unspecFail
	noAddrsAvail
	noBinding
	notOnLink
	useMulticast
)

// status is the status of a message, or of an IA or an address in it.
type status struct {
	code uint16
	text string
}

// String returns the status in words, without characters that do not print.
func (s status) String() string {
	names := [...]string{"Success", "UnspecFail", "NoAddrsAvail", "NoBinding", "NotOnLink", "UseMulticast"}
	name := fmt.Sprintf("status %d", s.code)
	if int(s.code) < len(names) {
		name = names[s.code]
	}
	return client.Because("the server answered "+name, s.text)
}

// statusOf reads the status; a missing one is success.
func statusOf(list dhcpv6.Options) status {
	v := get(list, OptStatus)
	if len(v) < 2 {
		return status{}
	}
	return status{binary.BigEndian.Uint16(v), client.Text(v[2:])}
}
