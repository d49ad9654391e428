package tuning

import (
	"cmp"
	"errors"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/ledger"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// memory holds the values from before ADD. Attributes of an interface are in upstream's file, so
// that either plugin can restore what the other has changed; the rest is in separate files.
type memory struct {
	interfaces  ledger.Ledger // CONTAINER_IFNAME.json: Attributes
	attachments ledger.Ledger // by owner: attachment
}

// attachment holds the values that the upstream plugin does not save. Each attachment with changes
// has one, even without sysctls, because GC, which receives no containers, finds attributes and
// namespaces through it.
type attachment struct {
	Container string `json:"containerID"`
	IfName    string `json:"ifName"`
	kernel.NamespaceRef
	Sysctl []value `json:"sysctl,omitempty"` // in the order in which they were changed
}

// namespace opens the network namespace of the attachment. It returns nil if the namespace no
// longer exists.
func (a attachment) namespace() *kernel.Namespace {
	ns, err := a.NamespaceRef.Open()
	if err != nil {
		return nil
	}
	return ns
}

// isIn reports whether ns is the network namespace of the attachment.
func (a attachment) isIn(ns *kernel.Namespace) bool {
	own := a.namespace()
	if own == nil {
		return false
	}
	defer own.Close()
	return own.Same(ns)
}

// value is a setting below /proc/sys with its earlier value.
type value struct {
	Key   string `json:"key"` // with slashes
	Value string `json:"value"`
}

func (c *Config) open() (memory, error) {
	id, err := statefile.BootID()
	if err != nil {
		return memory{}, cni.Errorf(cni.CodeIOFailure, "%w", err)
	}
	dir := cmp.Or(c.DataDir, defaultDataDir)
	return memory{ledger.Ledger{Dir: dir, Boot: id}, ledger.Ledger{
		Dir: filepath.Join(dir, ".tenon"), Boot: id,
	}}, nil
}

func fileName(a cni.Attachment) string { return a.Container + "_" + a.IfName + ".json" }

// remember saves the attributes and the values of settings from before the change. Values that an
// earlier ADD saved stay, because they are older, unless they belong to a namespace that no longer
// exists: a container can return without a DEL.
func (c *Config) remember(s *chained.Session, before Attributes) error {
	if len(c.settings) == 0 && before.none() {
		return nil
	}
	m, err := c.open()
	if err != nil {
		return err
	}
	values, err := valuesOf(s.Sandbox, c.settings)
	if err != nil {
		return err
	}
	a, stale := s.Attachment(), false
	err = add(s.Tx, m.attachments, string(a.Owner()), func(old attachment, there bool) attachment {
		if stale = there && !old.isIn(s.Sandbox.NS); stale {
			old.Sysctl = nil
		}
		return attachment{a.Container, a.IfName, s.Sandbox.NS.Ref(), older(old.Sysctl, values)}
	})
	if err == nil && stale {
		err = forget(s.Tx, m.interfaces, fileName(a))
	}
	if err != nil || before.none() {
		return err
	}
	return add(s.Tx, m.interfaces, fileName(a), func(old Attributes, _ bool) Attributes {
		return old.or(before)
	})
}

// valuesOf reads the current values of settings, except write-only ones.
func valuesOf(sandbox *kernel.Space, settings settings) ([]value, error) {
	if len(settings) == 0 {
		return nil, nil
	}
	var keys []string
	for _, x := range settings {
		keys = append(keys, x.file)
	}
	read, err := sandbox.Sysctl.Values(keys)
	if err != nil {
		return nil, err
	}
	var values []value
	for _, x := range read {
		values = append(values, value{x.Key, x.Value})
	}
	return values, nil
}

// older returns the old values, and the new values of settings that old lacks.
func older(old, now []value) []value {
	all := slices.Clone(old)
	for _, v := range now {
		if !slices.ContainsFunc(old, func(o value) bool { return o.Key == v.Key }) {
			all = append(all, v)
		}
	}
	return all
}

// add replaces a saved value by the result of change. A broken value counts as missing.
func add[T any](
	tx *kernel.Tx, l ledger.Ledger, name string, change func(old T, there bool) T,
) error {
	var old T
	there, err := l.Read(name, &old)
	if err != nil {
		old = *new(T)
	}
	now := change(old, there)
	if there && reflect.DeepEqual(old, now) {
		return nil
	}
	return tx.Do("remember "+name, func() error { return l.Write(name, now) }, func() error {
		if there {
			return l.Write(name, old)
		}
		return l.Remove(name)
	})
}

// forget removes a saved value. The removal is not undone.
func forget(tx *kernel.Tx, l ledger.Ledger, name string) error {
	return tx.Do("forget "+name, func() error { return l.Remove(name) }, nil)
}

// read returns the saved values as far as they can be read.
func (m memory) read(
	a cni.Attachment, log *slog.Logger,
) (before Attributes, settings []kernel.Setting) {
	var rest attachment
	_, e1 := m.interfaces.Read(fileName(a), &before)
	_, e2 := m.attachments.Read(string(a.Owner()), &rest)
	if err := errors.Join(e1, e2); err != nil {
		log.Warn("cannot read all saved values", "err", err)
	}
	for _, v := range rest.Sysctl {
		settings = append(settings, kernel.Setting{Key: v.Key, Value: v.Value})
	}
	return before, settings
}
