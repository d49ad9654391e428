package kernel

import "github.com/tenon-cni/tenon/internal/netns"

type (
	// Namespace is a handle on a network namespace. [Tx.Open] opens a [Space] for it.
	Namespace = netns.NS

	// NamespaceID identifies a namespace among all existing ones.
	NamespaceID = netns.ID

	// NamespaceRef identifies a namespace in files: its path, and its ID, because another namespace
	// may get the path. Its Open returns an error that wraps [ErrNoNamespace] if the namespace no
	// longer exists.
	NamespaceRef = netns.Ref
)

var (
	// ErrNoNamespace reports that the path of a namespace does not exist, because the namespace no
	// longer does.
	ErrNoNamespace = netns.ErrNotExist
	// ErrNotNamespace reports that a path is not a network namespace.
	ErrNotNamespace = netns.ErrNotNamespace
)

// OpenNamespace opens the network namespace at path. The error wraps [ErrNoNamespace] or
// [ErrNotNamespace] if one of them is the cause. The caller must close the handle.
func OpenNamespace(path string) (*Namespace, error) { return netns.Open(path) }

// CurrentNamespace opens the network namespace of the caller's thread. The caller must close the
// handle.
func CurrentNamespace() (*Namespace, error) { return netns.Current() }

// NewNamespace creates an empty network namespace. It exists until the caller closes the handle and
// no other reference is left.
func NewNamespace() (*Namespace, error) { return netns.New() }

// SameNamespace reports whether two paths lead to the same namespace. Equal paths are the same even
// if they do not exist.
func SameNamespace(a, b string) bool { return netns.SamePath(a, b) }

// IsNamespace reports whether a path leads to a network namespace.
func IsNamespace(path string) bool { return netns.Leads(path) }
