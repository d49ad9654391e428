package nft

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// MaxComment is the length in bytes of the longest comment of an element.
const MaxComment = 128

func checkComment(comment string) error {
	if comment == "" || len(comment) > MaxComment || strings.ContainsRune(comment, 0) {
		return fmt.Errorf("comment %q: not 1 to %d bytes without NUL", comment, MaxComment)
	}
	return nil
}

// elements lists a set; one that is not there has none.
func (c *Conn) elements(set *nftables.Set) ([]nftables.SetElement, error) {
	es, err := c.c.GetSetElements(set)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("elements of nft set %s: %w", set.Name, explain(err, lackingQuestion))
	}
	return es, nil
}

// element reads the element of a key, nil if there is none.
func (c *Conn) element(set *nftables.Set, key []byte) (*nftables.SetElement, error) {
	es, err := c.c.FindSetElements(set, []nftables.SetElement{{Key: key}})
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("element of nft set %s: %w", set.Name, err)
	case len(es) != 1:
		return nil, fmt.Errorf("element of nft set %s: %d answers", set.Name, len(es))
	}
	return &es[0], nil
}

func same(a, b *nftables.SetElement) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.Key, b.Key) && slices.Equal(a.KeyEnd, b.KeyEnd) && a.Comment == b.Comment
}
