package cni

import (
	"strings"
	"unicode"
)

// maxIfName is the longest interface name in bytes (Linux IFNAMSIZ less the terminating NUL).
const maxIfName = 15

// ValidateContainerID checks a container ID (specification 1.0.0, "Parameters"): an ASCII letter or
// digit, followed by letters, digits, underscores, dots and hyphens. The code is
// [CodeInvalidEnvironment] and the message names CNI_CONTAINERID.
func ValidateContainerID(id string) error {
	if !identifier(id) {
		return Errorf(CodeInvalidEnvironment, "CNI_CONTAINERID %q is not a valid container ID", id).
			WithDetails(identifierRule)
	}
	return nil
}

// ValidateNetworkName checks the name of a network by the rule for container IDs. The code is
// [CodeInvalidConfig].
func ValidateNetworkName(name string) error {
	if name == "" {
		return Errorf(CodeInvalidConfig, "network name is missing")
	}
	if !identifier(name) {
		return Errorf(CodeInvalidConfig, "network name %q is not valid", name).
			WithDetails(identifierRule)
	}
	return nil
}

// ValidateIfName checks the name of an interface by the rules of Linux (dev_valid_name, and
// dev_alloc_name for '%') and of libcni: 1 to 15 bytes, not "." or "..", without slash, colon,
// percent sign, white space and NUL. Unicode white space and the byte 0xA0 are invalid, too: libcni
// refuses the former, and the kernel treats the latter as white space. The code is
// [CodeInvalidEnvironment] and the message names CNI_IFNAME.
func ValidateIfName(name string) error {
	why := ""
	switch {
	case name == "":
		why = "it is empty"
	case len(name) > maxIfName:
		why = "it is longer than 15 bytes"
	case name == "." || name == "..":
		why = "it is a relative path"
	case strings.ContainsAny(name, "/:\x00"):
		why = "it holds a slash, a colon or a NUL"
	case strings.Contains(name, "%"):
		why = "it holds a percent sign, which the kernel takes for a pattern"
	case strings.ContainsFunc(name, unicode.IsSpace) || strings.Contains(name, "\xa0"):
		why = "it holds white space, or the byte 0xA0, which is white space to the kernel"
	default:
		return nil
	}
	return Errorf(CodeInvalidEnvironment, "CNI_IFNAME %q is not a valid interface name", name).
		WithDetails(why)
}

// ValidatePluginType checks a plugin type, the file name of its binary (specification 1.0.0: no
// path separator). The code is [CodeInvalidConfig].
func ValidatePluginType(typ string) error {
	if typ == "" {
		return Errorf(CodeInvalidConfig, "plugin type is missing")
	}
	if typ == "." || typ == ".." || strings.ContainsAny(typ, "/\x00") {
		return Errorf(CodeInvalidConfig, "plugin type %q is not a plain file name", typ)
	}
	return nil
}

const identifierRule = "it must start with a letter or digit " +
	"and hold only letters, digits, '_', '.' and '-'"

func identifier(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '_' || c == '.' || c == '-'):
		default:
			return false
		}
	}
	return s != ""
}
