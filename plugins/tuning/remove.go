package tuning

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Remove restores the saved values and deletes them.
func (c *Config) Remove(_ context.Context, s *chained.Session, gone chained.Gone) error {
	m, err := c.open()
	if err != nil {
		return err
	}
	if gone.All() {
		return collect(s, m, gone)
	}
	if s.Sandbox != nil {
		return m.remove(s.Tx, s.Sandbox, s.Attachment(), s.Log)
	}
	var x attachment // the namespace can exist nevertheless
	if _, err := m.attachments.Read(string(s.Attachment().Owner()), &x); err != nil {
		s.Log.Warn("cannot read all saved values", "err", err)
	}
	return m.removeFrom(s, x.namespace(), s.Attachment())
}

// collect is Remove for all attachments that no longer exist. It finds their namespaces, as far as
// they still exist, in the saved values. All networks share the directory: values that the upstream
// plugin saved stay unless they are from an earlier boot, because they do not name their network.
func collect(s *chained.Session, m memory, gone chained.Gone) error {
	owners, err := m.attachments.Names()
	_, err2 := m.interfaces.Names() // removes values of an earlier boot
	// ADD writes the file of the owner first, so a killed ADD leaves no draft of attributes without
	// one.
	drafts := m.attachments.RemoveDrafts(func(name string) bool {
		owner := cni.Owner(name)
		return owner.Valid() && gone.Owner(owner)
	})
	errs := []error{err, err2, drafts}
	for _, owner := range owners {
		if gone.Owner(cni.Owner(owner)) {
			errs = append(errs, collectOne(s, m, owner))
		}
	}
	return errors.Join(errs...)
}

func collectOne(s *chained.Session, m memory, owner string) error {
	var x attachment
	if _, err := m.attachments.Read(owner, &x); err != nil || x.Container == "" { // broken
		return forget(s.Tx, m.attachments, owner)
	}
	return m.removeFrom(s, x.namespace(), cni.Attachment{
		Network: s.Name, Container: x.Container, IfName: x.IfName,
	})
}

// removeFrom is remove in a saved namespace, which it closes. ns is nil if the namespace no longer
// exists.
func (m memory) removeFrom(s *chained.Session, ns *kernel.Namespace, a cni.Attachment) error {
	if ns == nil {
		return m.remove(s.Tx, nil, a, s.Log)
	}
	defer ns.Close()
	sandbox, err := s.Tx.Open(ns)
	if err != nil {
		return err
	}
	defer sandbox.Close()
	return m.remove(s.Tx, sandbox, a, s.Log)
}

// remove restores the saved values in the namespace, if it exists, and deletes them. The file by
// which GC finds the others is deleted last. Values that it fails to restore stay saved for the
// next DEL.
func (m memory) remove(
	tx *kernel.Tx, sandbox *kernel.Space, a cni.Attachment, log *slog.Logger,
) error {
	if sandbox != nil {
		attributes, settings := m.read(a, log)
		err := errors.Join(restore(sandbox, a.IfName, attributes, log), reset(sandbox, settings))
		if err != nil {
			return err
		}
	}
	if err := forget(tx, m.interfaces, fileName(a)); err != nil {
		return err
	}
	return forget(tx, m.attachments, string(a.Owner()))
}

// restore sets the attributes of an interface, if it exists, to their saved values. It skips values
// that the kernel refuses: the kernel would refuse them again, so DEL would never succeed.
func restore(sandbox *kernel.Space, ifName string, before Attributes, log *slog.Logger) error {
	if before.none() {
		return nil
	}
	link, err := sandbox.Links.ByName(ifName)
	if err != nil {
		return kernel.UnlessNoLink(err)
	}
	var errs []error
	for _, d := range before.differ(sandbox, link) {
		err := d.set()
		if session.Refused(err) {
			log.Warn("cannot restore an attribute", "err",
				fmt.Errorf("interface %s: %w", ifName, err))
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// reset sets settings to their saved values, in reverse order. It skips settings that no longer
// exist because their interface is gone, and values that the kernel refuses.
func reset(sandbox *kernel.Space, before []kernel.Setting) error {
	if len(before) == 0 {
		return nil
	}
	slices.Reverse(before)
	for i := range before {
		before[i].Optional = true
	}
	return sandbox.Sysctl.SetAll(before)
}
