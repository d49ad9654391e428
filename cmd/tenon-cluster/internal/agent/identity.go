package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// identify reads the identity of this installation, or creates it once.
func (a *Agent) identify() error {
	n, err := a.o.Local.Node()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		n = local.Node{Schema: cluster.Schema, Cluster: a.o.Cluster, Name: a.o.Node.Name,
			Identity: a.o.Nonce()}
	case err != nil:
		return err
	case n.Name != a.o.Node.Name || n.Cluster != a.o.Cluster:
		return cni.Errorf(cni.CodeInvalidConfig,
			"%w: the files in %s belong to node %s of cluster %s, not to node %s of cluster %s",
			registry.ErrIdentity, a.o.Dir, n.Name, n.Cluster, a.o.Node.Name, a.o.Cluster).
			WithDetails("if the disk is a copy, run `tenon-cluster node reset`; " +
				"otherwise set \"node\" and \"cluster\" to the earlier names")
	}
	if n.Machine != "" && a.o.Machine != "" && n.Machine != a.o.Machine {
		return cni.Errorf(cni.CodeInvalidConfig,
			"%w: the files in %s were written on machine %s, and this is machine %s",
			registry.ErrIdentity, a.o.Dir, n.Machine, a.o.Machine).
			WithDetails("if the disk is a copy, run `tenon-cluster node reset`; if it was moved here, " +
				"run `tenon-cluster release --node " + n.Name + "`, too")
	}
	old := n
	n.Machine = cmp.Or(n.Machine, a.o.Machine)
	if n.Proof == "" && n.Next == "" {
		n.Next = a.o.Nonce()
	}
	if n.Place == "" {
		if n.Place, err = a.o.Local.MarkPlace(); err != nil {
			return err
		}
	}
	if n != old {
		if err := a.o.Local.SetNode(n); err != nil {
			return err
		}
	}
	a.mu.Lock()
	a.identity, a.newest = n, n.Revision
	a.mu.Unlock()
	a.seen.Reset(n.Seen)
	if n.Restored != "" {
		a.seen.Doubt("%s", n.Restored)
	}
	return a.checkPlace()
}

// checkPlace returns an error that wraps [local.ErrCopied] and [registry.ErrIdentity] if the
// directory of this node is a copy, or was emptied.
func (a *Agent) checkPlace() error {
	a.mu.Lock()
	place := a.identity.Place
	a.mu.Unlock()
	err := a.o.Local.CheckPlace(place)
	if !errors.Is(err, local.ErrCopied) {
		return err
	}
	return cni.Errorf(cni.CodeInvalidConfig, "%w: %w", registry.ErrIdentity, err).
		WithDetails(local.CopiedHint(a.o.Node.Name))
}

// remember writes a change of the node's own document.
func (a *Agent) remember(change func(*local.Node)) error {
	a.mu.Lock()
	n := a.identity
	a.mu.Unlock()
	old := n
	if change(&n); n == old {
		return nil
	}
	if err := a.o.Local.SetNode(n); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.identity = n
	return nil
}

// foreign returns the error for a second host with the name, or the identity, of this node.
func (a *Agent) foreign(err error) error {
	if errors.Is(err, registry.ErrRival) {
		return cni.Errorf(cni.CodeInvalidConfig, "join node %s: %w", a.o.Node.Name, err).
			WithDetails(fmt.Sprintf("stop the copy of this node, end its containers, and run "+
				"`tenon-cluster node reset` there; then run `tenon-cluster confirm --node %s`, and "+
				"restart this agent", a.o.Node.Name))
	}
	return cni.Errorf(cni.CodeInvalidConfig, "join node %s: %w", a.o.Node.Name, err).
		WithDetails(fmt.Sprintf("give this host another name; if its disk is a copy, run "+
			"`tenon-cluster node reset`; if it replaces a dead host, release that one first: "+
			"`tenon-cluster release --node %s`", a.o.Node.Name))
}
