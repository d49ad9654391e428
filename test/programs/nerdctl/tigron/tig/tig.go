// Package tig stands in for a package of nerdctl's tests, which the Go module proxy does not have. The
// program nerdctl contains helpers of its tests, but does not call them.
package tig

import "testing"

// T is what the helpers need.
type T = testing.TB
