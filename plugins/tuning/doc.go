// Package tuning changes attributes of a container's interface, and sysctls of its network
// namespace. DEL restores the earlier values, which ADD saves on disk, in upstream's format where
// it exists.
package tuning

import _ "embed"

//go:embed doc.md
var doc string
