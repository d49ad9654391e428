package types

import "io"

// Result is the result of ADD in one version of the specification. The packages 020, 040 and 100
// implement it.
type Result interface {
	// Version returns the version of the result, "1.1.0"; it may be empty.
	Version() string

	// GetAsVersion returns the result in another version. The empty version means 0.1.0. For the
	// version of the result it returns the result itself.
	GetAsVersion(version string) (Result, error)

	// Print writes the result to standard output as indented JSON.
	Print() error

	// PrintTo writes the result to writer as indented JSON.
	PrintTo(writer io.Writer) error
}

// PrintResult converts a result to a version and writes it to standard output as indented JSON. It
// returns errors of [Result.GetAsVersion] and [Result.Print].
func PrintResult(result Result, version string) error {
	converted, err := result.GetAsVersion(version)
	if err != nil {
		return err
	}
	return converted.Print()
}
