package tuning

import (
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// allow refuses settings that no line of the administrator's list matches. Each line is a regular
// expression that can match any part of the key as it was written. The list takes precedence over
// configurations and arguments. Without a list all settings are allowed. Without settings the list
// is not read.
func (c *Config) allow(settings settings) error {
	if len(settings) == 0 {
		return nil
	}
	content, err := statefile.ReadFile(c.allowList)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cni.Errorf(cni.CodeIOFailure, "list of allowed sysctls: %w", err)
	}
	var list []*regexp.Regexp
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		expression, err := regexp.Compile(line)
		if err != nil {
			return cni.Errorf(cni.CodeInvalidConfig, "%s: %w", c.allowList, err)
		}
		list = append(list, expression)
	}
	for _, s := range settings {
		if !slices.ContainsFunc(list, func(e *regexp.Regexp) bool { return e.MatchString(s.key) }) {
			return cni.Errorf(cni.CodeInvalidConfig, "sysctl %q is not allowed", s.key).
				WithDetails("no line of " + c.allowList + " matches it")
		}
	}
	return nil
}
