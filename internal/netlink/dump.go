package netlink

// Dump returns the objects of a list of any kind, for programs that show more of an object than the
// types of this package hold. about is the structure before the attributes of the request; read
// appends the object of a message to its first argument and must copy what it keeps. Like all
// lists, a dump is repeated if its objects change meanwhile.
func Dump[T any](
	c *Conn, kind uint16, about any, attributes []Attribute, read func([]T, []byte) ([]T, error),
) ([]T, error) {
	return list(c, kind, about, attributes, read)
}

// Number decodes an unsigned number of 1, 2 or 4 bytes in native byte order, 0 for other lengths.
func Number(value []byte) int { return number(value) }
