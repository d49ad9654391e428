package config

// watcher reports that something may have changed in directories. The receiver looks at the
// directories itself, so a lost, late or unrelated event does no harm.
type watcher interface {
	// watch watches exactly these directories, and reports whether it did not watch some of them
	// before. It ignores directories that do not exist. The error is about directories that cannot
	// be watched.
	watch(dirs []string) (more bool, err error)
	Close() error
}
