package netns

import "fmt"

// Ref says which namespace something is in, to be kept on disk.
type Ref struct {
	Path string `json:"netns"`
	ID   ID     `json:"namespace"` // which it is, as another may get the path
}

// Ref returns what [Ref.Open] finds the namespace by.
func (n *NS) Ref() Ref { return Ref{Path: n.Path(), ID: n.id} }

// Open opens the namespace, if it is still there: the error wraps [ErrNotExist] if another one has its path.
func (r Ref) Open() (*NS, error) {
	n, err := Open(r.Path)
	if err != nil {
		return nil, err
	}
	if n.id != r.ID {
		n.Close()
		return nil, fmt.Errorf("%q: %w: it leads to another by now", r.Path, ErrNotExist)
	}
	return n, nil
}
