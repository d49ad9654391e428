package v6

import (
	"encoding/binary"
	"fmt"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

// status is the status of a message, or of an IA or address in it (RFC 8415 section 21.13).
type status struct {
	code iana.StatusCode
	text string
}

// String returns the status in words, without characters that do not print.
func (s status) String() string {
	name := s.code.String()
	if s.code > iana.StatusUseMulticast {
		name = fmt.Sprintf("status %d", uint16(s.code))
	}
	return client.Because("the server answered "+name, s.text)
}

// statusOf decodes the status. A missing status stands for success.
func statusOf(list dhcpv6.Options) status {
	v := get(list, dhcpv6.OptionStatusCode)
	if len(v) < 2 {
		return status{}
	}
	return status{iana.StatusCode(binary.BigEndian.Uint16(v)), client.Text(v[2:])}
}
