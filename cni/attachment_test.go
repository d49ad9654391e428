package cni_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tenon-cni/tenon/cni"
)

// Owners and tags are file names, link aliases and comments on running systems: these constants
// never change.
func TestOwnerAndTagArePinned(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		attachment cni.Attachment
		owner      cni.Owner
		tag        string
	}{
		{
			cni.Attachment{Network: "podnet", Container: "c1", IfName: "eth0"},
			"3aa0627f1611cce1abff7fa7da31d56a",
			"tenon:3aa0627f1611cce1abff7fa7da31d56a podnet eth0 c1",
		},
		{
			cni.Attachment{Network: "podnet", Container: "c1", IfName: "net1"},
			"3aa0627f1611cce1a68f57a52322d158",
			"tenon:3aa0627f1611cce1a68f57a52322d158 podnet net1 c1",
		},
		{
			cni.Attachment{Network: "a.b-c_d.example",
				Container: strings.Repeat("0123456789abcdef", 4), IfName: "123456789012345"},
			"0115103061820ac6de7b15ff58c9fd2b",
			"tenon:0115103061820ac6de7b15ff58c9fd2b a.b-c_d.example 123456789012345 0123456789abcdef0123456789abcdef0123456789abcdef01234567",
		},
		{
			cni.Attachment{}, "e3b0c44298fc1c1496a296d224f285c6",
			"tenon:e3b0c44298fc1c1496a296d224f285c6   ",
		},
	} {
		if got := test.attachment.Owner(); got != test.owner {
			t.Errorf("%v: owner %q, want %q", test.attachment, got, test.owner)
		}
		if got := test.attachment.Tag(); got != test.tag {
			t.Errorf("%v: tag %q, want %q", test.attachment, got, test.tag)
		}
		if got := test.owner.Network(); got != cni.NetworkOwner(test.attachment.Network) {
			t.Errorf("%v: network %q, want %q", test.attachment, got,
				cni.NetworkOwner(test.attachment.Network))
		}
		if got, ok := cni.ParseTag(test.tag); got != test.owner || !ok {
			t.Errorf("%q parsed as %q, %v", test.tag, got, ok)
		}
	}
}

// The parts of a key cannot run into each other.
// DIS-19
func TestOwnerTellsPartsApart(t *testing.T) {
	t.Parallel()
	owners := map[cni.Owner]cni.Attachment{}
	for _, a := range []cni.Attachment{
		{Network: "n", Container: "ab", IfName: "c"}, {Network: "n", Container: "a", IfName: "bc"},
		{Network: "na", Container: "b", IfName: "c"}, {Network: "n", Container: "c", IfName: "ab"},
	} {
		if b, taken := owners[a.Owner()]; taken {
			t.Errorf("%v and %v have owner %s", a, b, a.Owner())
		}
		owners[a.Owner()] = a
	}
}

func TestTagFitsComment(t *testing.T) {
	t.Parallel()
	for length := range 200 {
		a := cni.Attachment{Network: strings.Repeat("n", length), IfName: "éééé", Container: "é"}
		if tag := a.Tag(); len(tag) > 127 || !utf8.ValidString(tag) {
			t.Errorf("name of %d bytes: tag %q", length, tag)
		}
		if o, ok := cni.ParseTag(a.Tag()); o != a.Owner() || !ok {
			t.Errorf("name of %d bytes: owner %q, %v", length, o, ok)
		}
	}
}

func TestParseTagRefusesOthers(t *testing.T) {
	t.Parallel()
	for _, tag := range []string{
		"", "tenon:", "tenon: n eth0 c1", "tenon:0123456789abcdef",
		"tenon:0123456789ABCDEF0123456789abcdef n",
		"tenon:0123456789abcdeg0123456789abcdef", "tenon:0123456789abcdef0123456789abcdef0 n",
		"TENON:0123456789abcdef0123456789abcdef", "x tenon:0123456789abcdef0123456789abcdef",
	} {
		if o, ok := cni.ParseTag(tag); o != "" || ok {
			t.Errorf("%q parsed as %q, %v", tag, o, ok)
		}
	}
}

func TestAttachmentString(t *testing.T) {
	t.Parallel()
	if got := (cni.Attachment{Network: "n", Container: "c1",
		IfName: "eth0"}).String(); got != "n/c1/eth0" {
		t.Errorf("%q", got)
	}
}

func TestOwnerNetworkOfShortOwner(t *testing.T) {
	t.Parallel()
	if got := cni.Owner("abc").Network(); got != "abc" {
		t.Errorf("%q", got)
	}
}

func TestAttachmentValidate(t *testing.T) {
	t.Parallel()
	for code, a := range map[cni.Code][]cni.Attachment{
		0: {{Network: "n", Container: "c", IfName: "eth0"}},
		cni.CodeInvalidConfig: {{Container: "c", IfName: "eth0"},
			{Network: "../n", Container: "c", IfName: "eth0"}},
		cni.CodeInvalidEnvironment: {{Network: "n", IfName: "eth0"},
			{Network: "n", Container: "c", IfName: "a/b"}},
	} {
		for _, a := range a {
			if err := a.Validate(); cni.CodeOf(err) != code {
				t.Errorf("%v: %v, want code %d", a, err, code)
			}
		}
	}
}
