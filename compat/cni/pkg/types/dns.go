package types

import "slices"

// DNS holds the DNS settings of a result or a network configuration.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"` // addresses, in order of priority
	Domain      string   `json:"domain,omitempty"`      // local domain, for short names
	Search      []string `json:"search,omitempty"`      // search domains, in order of priority
	Options     []string `json:"options,omitempty"`     // resolver options
}

// IsEmpty reports whether no setting is present.
func (d *DNS) IsEmpty() bool {
	return d.Domain == "" && len(d.Nameservers) == 0 && len(d.Search) == 0 && len(d.Options) == 0
}

// Copy returns a deep copy of d, in which empty lists are nil. Copy of nil is nil.
func (d *DNS) Copy() *DNS {
	if d == nil {
		return nil
	}
	return &DNS{
		Nameservers: copyList(d.Nameservers),
		Domain:      d.Domain,
		Search:      copyList(d.Search),
		Options:     copyList(d.Options),
	}
}

func copyList(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return slices.Clone(list)
}
