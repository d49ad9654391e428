package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Lend and Fetch move a link directly between two namespaces. An intermediate namespace would lose
// the link if the process died. The kernel moves and renames a link in one request, so the link is
// always in one of the two spaces. The lending space never sees the link under its name in the
// other space, which tools there (udev, network managers) would take for a new device: Lend renames
// the link after the move, and Fetch before the move or in the same step.

// Lend moves a link to another space under a name and returns it: down, without addresses and
// routes, with its alias. If the name is in use there, the error wraps [unix.EEXIST]. Rollback
// fetches the link and restores its state, its master, the addresses of [Addrs.Kept], and its
// routes.
func (s Links) Lend(l Link, to *Space, name string) (lent Link, err error) {
	if err := to.nameInUse(name, unix.EEXIST); err != nil {
		return Link{}, err
	}
	if err := s.space.strip(l); err != nil {
		return Link{}, err
	}
	err = s.space.tx.Do(fmt.Sprintf("lend %s as %s", l.Name, name),
		func() (err error) {
			lent, err = s.space.lend(l, to, name, 0)
			return err
		},
		func() error { return present(errorOf(s.space.fetch(lent, to, l.Name, l.Index))) })
	return lent, err
}

// strip removes what a link loses in a move, so that Rollback restores it.
func (s *Space) strip(l Link) error {
	routes, err := s.Routes.Stored(l)
	if err != nil {
		return err
	}
	for _, r := range slices.Backward(routes) {
		if r.Derived() {
			continue
		}
		if err := s.Routes.Remove(l, r); err != nil {
			return err
		}
	}
	addrs, err := s.Addrs.Kept(l)
	if err != nil {
		return err
	}
	for _, a := range slices.Backward(addrs) {
		if err := s.Addrs.Delete(l, a); err != nil {
			return err
		}
	}
	if l.Master != 0 {
		if err := s.Links.SetMaster(l, Link{Name: "none"}); err != nil {
			return err
		}
	}
	return s.Links.Down(l)
}

func (s *Space) lend(l Link, to *Space, name string, index int) (Link, error) {
	err := s.move(l, to, name, index)
	if errors.Is(err, unix.ENODEV) {
		return Link{}, err
	}
	var lent Link
	if err == nil {
		lent, err = to.Links.ByName(name)
	}
	if err != nil {
		return Link{}, errors.Join(err, s.recall(l, to))
	}
	return lent, nil
}

// recall fetches a link that has moved although the request or a later step failed, because another
// process took the name first.
func (s *Space) recall(l Link, to *Space) error {
	if _, err := s.Links.ByIndex(l.Index); !errors.Is(err, ErrNoLink) {
		return err
	}
	links, err := to.Links.All()
	if err != nil {
		return err
	}
	for _, there := range links {
		if there.Kind == l.Kind && there.Alias == l.Alias && slices.Equal(there.MAC, l.MAC) && !there.Up {
			return errorOf(s.fetch(there, to, l.Name, l.Index))
		}
	}
	return nil
}

// Fetch moves a link from another space to this one under a name and, if it is free, an index; 0
// stands for any index. It returns the link: down, without addresses and routes, with its alias. If
// the name is in use here, the error wraps [unix.EEXIST] and the link is unchanged. Rollback lends
// the link and sets it up if it was up; its addresses and routes are lost. The link loses
// alternative names that are in use here, because otherwise the kernel refuses the move (since
// Linux 6.7).
func (s Links) Fetch(l Link, from *Space, name string, index int) (fetched Link, err error) {
	if err := s.space.nameInUse(name, unix.EEXIST); err != nil {
		return Link{}, err
	}
	if err := from.Links.Down(l); err != nil {
		return Link{}, err
	}
	err = s.space.tx.Do(fmt.Sprintf("fetch %s as %s", l.Name, name),
		func() (err error) {
			fetched, err = s.space.fetch(l, from, name, index)
			return err
		},
		func() error { return present(errorOf(s.space.lend(fetched, from, l.Name, l.Index))) })
	return fetched, err
}

func (s *Space) fetch(l Link, from *Space, name string, index int) (Link, error) {
	dropped, err := s.dropAltNames(l, from, name)
	if err == nil {
		err = s.fetchNamed(l, from, name, index)
	}
	if err != nil {
		errs := []error{err}
		for _, alt := range dropped {
			errs = append(errs, present(from.rt.Links.AddAltName(l, alt)))
		}
		return Link{}, errors.Join(errs...)
	}
	return s.Links.ByName(name)
}

// dropAltNames removes the alternative names of a link that are in use here, or that equal its new
// name.
func (s *Space) dropAltNames(l Link, from *Space, name string) (dropped []string, err error) {
	l, err = from.Links.ByIndex(l.Index)
	if err != nil {
		return nil, err
	}
	for _, alt := range l.AltNames {
		if _, err := s.Links.ByName(alt); alt != name && errors.Is(err, ErrNoLink) {
			continue
		}
		if err := from.rt.Links.RemoveAltName(l, alt); err != nil {
			return dropped, fmt.Errorf("remove alternative name %s: %w", alt, err)
		}
		dropped = append(dropped, alt)
	}
	return dropped, nil
}

func (s *Space) fetchNamed(l Link, from *Space, name string, index int) error {
	if err := s.prepare(l, from, name); err != nil {
		return err
	}
	if err := from.move(l, s, name, index); err != nil {
		return errors.Join(err, present(from.rt.Links.Rename(l, l.Name)))
	}
	return nil
}

// move moves a link under a name and, if it is free, an index.
func (s *Space) move(l Link, to *Space, name string, index int) error {
	err := s.rt.Links.Move(l, to.NS, name, index)
	if errors.Is(err, unix.EBUSY) && index != 0 {
		err = s.rt.Links.Move(l, to.NS, name, 0)
	}
	return err
}

// prepare renames a link before Fetch moves it, so that it does not arrive under its name in the
// other space. The temporary name is the final one or, if that is in use there, the name of any
// link here; the kernel then renames the link before it arrives. If all names of links here are in
// use there, prepare does not rename the link, and it arrives under its old name.
func (s *Space) prepare(l Link, from *Space, name string) error {
	if l.Name == name {
		return nil
	}
	err := from.rt.Links.Rename(l, name)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	if s.nameInUse(l.Name, unix.EEXIST) != nil {
		return nil
	}
	links, err := s.Links.All()
	if err != nil {
		return err
	}
	for _, here := range links {
		if err := from.rt.Links.Rename(l, here.Name); !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return nil
}

// Rename renames a link, which must be down. If the name is in use, the error wraps [unix.EEXIST].
// Rollback restores l.Name, but not an alternative name of the link that equals the new name.
func (s Links) Rename(l Link, name string) error {
	return s.space.tx.set(fmt.Sprintf("name %s dev %s", name, l.Name),
		func() error {
			err := s.space.rt.Links.Rename(l, name)
			if errors.Is(err, unix.EEXIST) && slices.Contains(l.AltNames, name) {
				if err = s.space.rt.Links.RemoveAltName(l, name); err == nil {
					err = s.space.rt.Links.Rename(l, name)
				}
			}
			if errors.Is(err, unix.EEXIST) {
				err = cmp.Or(s.space.nameInUse(name, err), err)
			}
			return err
		},
		func() error { return present(s.space.rt.Links.Rename(l, l.Name)) })
}
