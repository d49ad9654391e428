//go:build !linux

package config

import "errors"

// newWatcher returns an error that wraps [errors.ErrUnsupported].
func newWatcher(chan<- struct{}) (watcher, error) { return nil, errors.ErrUnsupported }
