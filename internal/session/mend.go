package session

import "errors"

// Mending restores missing objects of an attachment other than rules: links, addresses, routes and
// settings. A plugin compares the objects with the ones of ADD, and calls [Mending.Fix] for
// each that is missing.
type Mending struct {
	// DryRun makes Fix note missing objects only.
	DryRun bool
	// Allow reports whether an object may be restored now. nil allows all objects. Attachments share
	// objects, such as a bridge, so the name of an object is the same for all of them.
	Allow func(object string) bool

	Restored []string // the objects that were restored, or would be, for people
	Err      error    // the joined errors of objects that could not be restored
}

// Fix restores an object by calling restore. It continues after errors, because other objects can
// often be restored still, and collects them in Err. It reports whether the object now exists.
func (m *Mending) Fix(object string, restore func() error) bool {
	if m.Allow != nil && !m.Allow(object) {
		return false
	}
	if !m.DryRun {
		if err := restore(); err != nil {
			m.Err = errors.Join(m.Err, err)
			return false
		}
	}
	m.Restored = append(m.Restored, object)
	return !m.DryRun
}
