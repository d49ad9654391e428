// Package plural writes numbers with their nouns. It knows no irregular noun.
package plural

import (
	"fmt"
	"strings"
)

// Count returns a number and a noun, in singular or plural: "1 address", "2 addresses".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") {
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
