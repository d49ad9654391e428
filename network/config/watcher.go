package config

// watcher tells that something may have changed in directories. What exactly is for others to find out, so that an event that is
// lost, late or about something else does no harm.
type watcher interface {
	// watch makes directories those that are watched, and reports whether some were not before. Those that are not there are
	// left out. The error is about directories that cannot be watched.
	watch(folders []string) (more bool, err error)
	Close() error
}
