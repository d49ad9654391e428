package hostnat

import "github.com/tenon-cni/tenon/internal/iptables"

// The tests of these functions are in package hostnat_test, because package testnet imports
// hostnat.
var (
	OpenLegacy = openLegacy
	FromNFT    = fromNFT
	ErrBlob    = errBlob
)

func (l *legacy) Close()                                 { l.close() }
func (l *legacy) Chain(name string) ([]Rule, error)      { return l.chain(name) }
func (l *legacy) Blob() []byte                           { return l.blob }
func (l *legacy) Size() uint32                           { return l.info.Size }
func (l *legacy) ReadAll() error                         { return l.need(l.info.Size) }
func (r *Rule) Match(name string, rev byte, info []byte) { r.match(name, rev, info) }

// Legacy is a table of the legacy variant.
type Legacy = legacy

// RulesOf reads the rules of a blob.
func RulesOf(f iptables.Family, blob []byte) ([]Rule, error) {
	l := legacy{
		family: f, blob: blob, names: map[string]uint32{}, info: tableInfo{Size: uint32(len(blob))},
	}
	return l.rules(0, l.info.Size)
}
