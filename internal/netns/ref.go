package netns

import "fmt"

// Ref identifies a namespace on disk.
type Ref struct {
	Path string `json:"netns"`
	ID   ID     `json:"namespace"` // identifies the namespace, because the path may be reused
}

// Ref returns the reference with which [Ref.Open] finds the namespace.
func (n *NS) Ref() Ref { return Ref{Path: n.Path(), ID: n.id} }

// Open opens the namespace. The error wraps [ErrNotExist] if the path leads to another one.
func (r Ref) Open() (*NS, error) {
	n, err := Open(r.Path)
	if err != nil {
		return nil, err
	}
	if n.id != r.ID {
		n.Close()
		return nil, fmt.Errorf("%q: %w: the path now leads to another one", r.Path, ErrNotExist)
	}
	return n, nil
}
