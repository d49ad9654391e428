package plugin

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/tenon-cni/tenon/cni"
)

// validateEnv validates the environment of a call. Its messages equal upstream's, which runtimes
// match.
func validateEnv(env cni.Env) error {
	err := env.Validate()
	if err == nil || env.Command == "" {
		return err
	}
	if !env.Command.Valid() {
		return cni.Rephrase(err, "unknown CNI_COMMAND: %s", env.Command)
	}
	var missing []string
	for _, v := range []struct {
		name, value string
		optional    bool
	}{
		{"CNI_CONTAINERID", env.ContainerID, false},
		{"CNI_NETNS", env.Netns, env.Command == cni.Del},
		{"CNI_IFNAME", env.IfName, false},
		{"CNI_PATH", env.Path, false},
	} {
		if v.value == "" && !v.optional {
			missing = append(missing, v.name)
		}
	}
	switch name := env.IfName; {
	case env.ContainerID != "" && cni.ValidateContainerID(env.ContainerID) != nil:
		return cni.Rephrase(err, "invalid characters in containerID")
	case strings.Contains(env.Netns, "\x00"):
		return err
	case len(name) > 15:
		return cni.Rephrase(err, "interface name is too long")
	case name == "." || name == "..":
		return cni.Rephrase(err, "interface name is . or ..")
	case strings.ContainsAny(name, "/:") || strings.ContainsFunc(name, unicode.IsSpace):
		return cni.Rephrase(err, "interface name contains / or : or whitespace characters")
	case name != "" && cni.ValidateIfName(name) != nil:
		return err
	}
	return cni.Rephrase(err, "required env variables [%s] missing", strings.Join(missing, ","))
}

// decodeHeader returns the name and the version of a configuration. Its messages equal upstream's,
// except where upstream names Go types.
func decodeHeader(stdin []byte) (name, version string, err error) {
	name, version, err = cni.DecodeHeader(stdin)
	if err != nil {
		if syntax := json.Unmarshal(stdin, new(json.RawMessage)); syntax != nil {
			err = cni.Rephrase(err, "error unmarshall network config: %v", syntax)
		}
		return name, version, err
	}
	if err = cni.ValidateNetworkName(name); err != nil && name == "" {
		err = cni.Rephrase(err, "missing network name")
	} else if err != nil {
		err = cni.Rephrase(err, "invalid characters found in network name")
	}
	return name, version, err
}

// parseArgs parses CNI_ARGS and refuses unknown keys. Its messages equal upstream's.
func parseArgs(s string, known []string) (cni.Args, error) {
	args, err := cni.ParseArgs(s)
	if err != nil {
		for pair := range strings.SplitSeq(s, ";") {
			if strings.Count(pair, "=") != 1 {
				return nil, cni.Rephrase(err, "ARGS: invalid pair %q", pair)
			}
		}
		return nil, err
	}
	if err = args.CheckKnown(known...); err == nil {
		return args, nil
	}
	var unknown []string
	for _, a := range args {
		pair := fmt.Sprintf("%s=%s", a.Key, a.Value)
		if a.Key == "IgnoreUnknown" {
			switch strings.ToLower(a.Value) {
			case "0", "1", "false", "true":
			default:
				return nil, cni.Rephrase(err,
					"ARGS: error parsing value of pair %q: boolean unmarshal error: invalid input %s",
					pair, a.Value)
			}
		} else if cni.Args([]cni.Arg{a}).CheckKnown(known...) != nil {
			unknown = append(unknown, pair)
		}
	}
	return nil, cni.Rephrase(err, "ARGS: unknown args %q", unknown)
}
