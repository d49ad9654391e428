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

// memory is what is known of the time before ADD. Of the attributes of an interface it is the reference plugin's, so that
// either plugin can put back what the other has changed; the rest stands beside.
type memory struct {
	interfaces  ledger.Ledger // CONTAINER_IFNAME.json: Attributes
	attachments ledger.Ledger // by owner: attachment
}

// attachment is what the reference plugin does not remember. There is one for all that has been changed for an attachment, so
// that GC, which knows no containers, finds the attributes and the namespace too.
type attachment struct {
	Container string `json:"containerID"`
	IfName    string `json:"ifName"`
	kernel.NamespaceRef
	Sysctl []value `json:"sysctl,omitempty"` // in the order in which they were changed
}

// namespace opens the namespace that the attachment is in, nil if it is gone.
func (a attachment) namespace() *kernel.Namespace {
	ns, err := a.NamespaceRef.Open()
	if err != nil {
		return nil
	}
	return ns
}

// isIn reports whether ns is the namespace that the attachment is in.
func (a attachment) isIn(ns *kernel.Namespace) bool {
	own := a.namespace()
	if own == nil {
		return false
	}
	defer own.Close()
	return own.Same(ns)
}

// value is a setting below /proc/sys and what it was.
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
	return memory{ledger.Ledger{Dir: dir, Boot: id}, ledger.Ledger{Dir: filepath.Join(dir, ".tenon"), Boot: id}}, nil
}

func fileName(a cni.Attachment) string { return a.Container + "_" + a.IfName + ".json" }

// remember keeps the attributes, and the values that settings have, of before the change. What an ADD before has remembered
// stays, as it is older, unless it was about a namespace that is gone: a container can come back without a DEL.
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
	return add(s.Tx, m.interfaces, fileName(a), func(old Attributes, _ bool) Attributes { return old.or(before) })
}

// valuesOf reads the values that settings have, those that can be read.
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

// older returns the old values, and of the new ones those of other settings.
func older(old, now []value) []value {
	all := slices.Clone(old)
	for _, v := range now {
		if !slices.ContainsFunc(old, func(o value) bool { return o.Key == v.Key }) {
			all = append(all, v)
		}
	}
	return all
}

// add replaces a value by what change makes of it. One that is broken counts as none.
func add[T any](tx *kernel.Tx, l ledger.Ledger, name string, change func(old T, there bool) T) error {
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

// forget removes a value. Nothing brings it back.
func forget(tx *kernel.Tx, l ledger.Ledger, name string) error {
	return tx.Do("forget "+name, func() error { return l.Remove(name) }, nil)
}

// read returns what there was before, as far as it is known.
func (m memory) read(a cni.Attachment, log *slog.Logger) (before Attributes, settings []kernel.Setting) {
	var rest attachment
	_, e1 := m.interfaces.Read(fileName(a), &before)
	_, e2 := m.attachments.Read(string(a.Owner()), &rest)
	if err := errors.Join(e1, e2); err != nil {
		log.Warn("what there was before is not known", "err", err)
	}
	for _, v := range rest.Sysctl {
		settings = append(settings, kernel.Setting{Key: v.Key, Value: v.Value})
	}
	return before, settings
}
