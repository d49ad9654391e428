// Package flags explains mistakes in the flags of a command line in plain words.
package flags

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Explain returns an error of [pflag.FlagSet.Parse] in plain words, and other errors as they are.
// If the type of a flag is not one of pflag's own, the error of its Set method is the explanation.
func Explain(err error) error {
	var (
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
		syntax  *pflag.InvalidSyntaxError
	)
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("unknown flag %s%s", dashes(unknown.GetSpecifiedShortnames()),
			unknown.GetSpecifiedName())
	case errors.As(err, &missing):
		value, _ := pflag.UnquoteUsage(missing.GetFlag())
		return fmt.Errorf("%s%s needs a value: %[1]s%[2]s %[3]s",
			dashes(missing.GetSpecifiedShortnames()), missing.GetSpecifiedName(), value)
	case errors.As(err, &invalid):
		return invalidValue(invalid)
	case errors.As(err, &syntax):
		return fmt.Errorf("%q is not a flag", syntax.GetSpecifiedFlag())
	}
	return err
}

// dashes returns what precedes the name of a flag. The argument is "" unless the flag was written
// as a letter.
func dashes(letters string) string {
	if letters != "" {
		return "-"
	}
	return "--"
}

// invalidValue explains why a flag cannot have a value.
func invalidValue(e *pflag.InvalidValueError) error {
	f, value := e.GetFlag(), e.GetValue()
	switch f.Value.Type() {
	case "bool", "boolfunc":
		return fmt.Errorf("--%s=%s: must be true or false", f.Name, value)
	case "duration":
		if value != "" && strings.Trim(value, "0123456789.") == "" {
			return fmt.Errorf("--%s %s: add a unit, such as %[2]ss", f.Name, value)
		}
		return fmt.Errorf("--%s %q is not a duration such as 30s, 5m or 1h30m", f.Name, value)
	case "int", "int64", "uint", "uint16", "uint32", "uint64":
		return fmt.Errorf("--%s %q is not a whole number, or out of range", f.Name, value)
	}
	return fmt.Errorf("--%s %q: %w", f.Name, value, e.Unwrap())
}
