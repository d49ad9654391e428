package attach

import "cmp"

// Texts are the messages of CHECK in which upstream's plugins differ. "" stands for the words that most
// of them have.
type Texts struct {
	NoPrev string // there is no prevResult
	NoLink string // operand: the container's interface
	Kind   string // operands: the container's interface, the kind that it should have
	MAC    string // operands: the container's interface, the MAC address in prevResult, the one it has
	Other  string // prevResult has no such interface in the container; operand: CNI_NETNS
}

func (t Texts) orDefault() Texts {
	return Texts{
		NoPrev: cmp.Or(t.NoPrev, "Required prevResult missing"),
		NoLink: cmp.Or(t.NoLink, "Container Interface name in prevResult: %s not found"),
		Kind:   cmp.Or(t.Kind, "Error: Container interface %s not of type %s"),
		MAC:    cmp.Or(t.MAC, "Interface %s Mac %s doesn't match container Mac: %s"),
		Other:  cmp.Or(t.Other, "Sandbox in prevResult  doesn't match configured netns: %s"),
	}
}
