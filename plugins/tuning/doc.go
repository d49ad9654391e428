// Package tuning changes what an interface of a container is like, and settings of the container's kernel. DEL puts back
// what was there before: the plugin remembers it on disk, in the format of the reference plugin as far as that has one.
package tuning

import _ "embed"

//go:embed doc.md
var doc string
