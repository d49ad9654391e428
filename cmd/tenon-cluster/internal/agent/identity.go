package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// identity is the node's own document, node.json.
type identity struct {
	o *Options

	mu   sync.Mutex // guards the following field
	file local.Node // as in the file, but for the proofs: see advance
}

// node returns the node's own document.
func (i *identity) node() local.Node {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.file
}

func (i *identity) set(n local.Node) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.file = n
}

// read reads the identity of this installation, or creates it once.
func (i *identity) read() error {
	n, err := i.o.Local.Node()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		n = local.Node{Schema: cluster.Schema, Cluster: i.o.Cluster, Name: i.o.Node.Name,
			Identity: i.o.Nonce()}
	case err != nil:
		return err
	case n.Name != i.o.Node.Name || n.Cluster != i.o.Cluster:
		return cni.Errorf(cni.CodeInvalidConfig,
			"%w: the files in %s belong to node %s of cluster %s, not to node %s of cluster %s",
			registry.ErrIdentity, i.o.Dir, n.Name, n.Cluster, i.o.Node.Name, i.o.Cluster).
			WithDetails("if the disk is a copy, run `tenon-cluster node reset`; " +
				"otherwise set \"node\" and \"cluster\" to the earlier names")
	}
	if n.Machine != "" && i.o.Machine != "" && n.Machine != i.o.Machine {
		return cni.Errorf(cni.CodeInvalidConfig,
			"%w: the files in %s were written on machine %s, and this is machine %s",
			registry.ErrIdentity, i.o.Dir, n.Machine, i.o.Machine).
			WithDetails("if the disk is a copy, run `tenon-cluster node reset`; if it was moved here, " +
				"run `tenon-cluster release --node " + n.Name + "`, too")
	}
	old := n
	n.Machine = cmp.Or(n.Machine, i.o.Machine)
	if n.Proof == "" && n.Next == "" {
		n.Next = i.o.Nonce()
	}
	if n.Place == "" {
		if n.Place, err = i.o.Local.MarkPlace(); err != nil {
			return err
		}
	}
	if n != old {
		if err := i.o.Local.SetNode(n); err != nil {
			return err
		}
	}
	i.set(n)
	return i.checkPlace()
}

// checkPlace returns an error that wraps [local.ErrCopied] and [registry.ErrIdentity] if the
// directory of this node is a copy, or was emptied.
func (i *identity) checkPlace() error {
	err := i.o.Local.CheckPlace(i.node().Place)
	if !errors.Is(err, local.ErrCopied) {
		return err
	}
	return cni.Errorf(cni.CodeInvalidConfig, "%w: %w", registry.ErrIdentity, err).
		WithDetails(local.CopiedHint(i.o.Node.Name))
}

// remember writes a change of the node's own document. The caller has the turn.
func (i *identity) remember(change func(*local.Node)) error {
	n := i.node()
	old := n
	if change(&n); n == old {
		return nil
	}
	if err := i.o.Local.SetNode(n); err != nil {
		return err
	}
	i.set(n)
	return nil
}

// advance notes that the store has the next proof. It becomes durable together with its successor.
// The caller has the turn.
func (i *identity) advance() {
	n := i.node()
	if n.Next == "" {
		return
	}
	n.Proof, n.Next = n.Next, ""
	n.Turn++
	i.set(n)
}

// foreign returns the error for a second host with the name, or the identity, of this node.
func (i *identity) foreign(err error) error {
	if errors.Is(err, registry.ErrRival) {
		return cni.Errorf(cni.CodeInvalidConfig, "join node %s: %w", i.o.Node.Name, err).
			WithDetails(fmt.Sprintf("stop the copy of this node, end its containers, and run "+
				"`tenon-cluster node reset` there; then run `tenon-cluster confirm --node %s`, and "+
				"restart this agent", i.o.Node.Name))
	}
	return cni.Errorf(cni.CodeInvalidConfig, "join node %s: %w", i.o.Node.Name, err).
		WithDetails(fmt.Sprintf("give this host another name; if its disk is a copy, run "+
			"`tenon-cluster node reset`; if it replaces a dead host, release that one first: "+
			"`tenon-cluster release --node %s`", i.o.Node.Name))
}
