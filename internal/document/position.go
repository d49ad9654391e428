package document

import (
	"bytes"
	"unicode/utf8"
)

// Position is the line and the column where the value begins, both from 1; columns are characters.
func (n *Node) Position() (line, column int) {
	before := n.document[:n.offset]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, 1 + utf8.RuneCount(before[1+bytes.LastIndexByte(before, '\n'):])
}
