package utils_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
)

// text returns the whole error object.
func text(e *types.Error) string {
	if e == nil {
		return ""
	}
	return fmt.Sprintf("%d %s|%s", e.Code, e.Msg, e.Details)
}

func TestIdentifiers(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "0", "Web-1.eth_0", "a.", strings.Repeat("x", 300)} {
		if err := utils.ValidateContainerID(id); err != nil {
			t.Errorf("container ID %q: %v", id, err)
		}
		if err := utils.ValidateNetworkName(id); err != nil {
			t.Errorf("network name %q: %v", id, err)
		}
	}
	for _, id := range []string{
		"-a", ".a", "_a", "a/b", "../x", "a b", "é", "a\n", "a\x00", "1234%%%",
	} {
		if got := text(utils.ValidateContainerID(id)); got != "4 invalid characters in containerID|"+id {
			t.Errorf("container ID %q: %s", id, got)
		}
		if got := text(utils.ValidateNetworkName(id)); got !=
			"7 invalid characters found in network name|"+id {
			t.Errorf("network name %q: %s", id, got)
		}
	}
	if got := text(utils.ValidateContainerID("")); got != "3 missing containerID|" {
		t.Errorf("no container ID: %s", got)
	}
	if got := text(utils.ValidateNetworkName("")); got != "7 missing network name:|" {
		t.Errorf("no network name: %s", got)
	}
}

func TestValidateInterfaceName(t *testing.T) {
	t.Parallel()
	const (
		long = "4 interface name is too long|interface name should be less than 16 characters"
		bad  = "4 interface name contains / or : or whitespace characters|"
		dots = "4 interface name is . or ..|"
	)
	for name, want := range map[string]string{
		"eth0":             "",
		"123456789012345":  "",
		"...":              "",
		"é":                "",
		"eth%d":            "", // the kernel refuses these
		"a\x00b":           "",
		"\xff":             "",
		"a\xa0":            "",
		"":                 "4 interface name is empty|",
		"1234567890123456": long,
		"éééééééé":         long, // 16 bytes
		"123456789012345/": long, // the length comes first
		".":                dots,
		"..":               dots,
		"a/b":              bad,
		"a:1":              bad,
		"a b":              bad,
		"a\t":              bad,
		"a\u2003":          bad,
		"a\u0085":          bad,
	} {
		if got := text(utils.ValidateInterfaceName(name)); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}
