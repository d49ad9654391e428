package kernel

import (
	"errors"
	"fmt"
	"io/fs"
)

// Set sets a kernel setting in the namespace unless it has the value. Rollback restores the former
// value. The error wraps [fs.ErrNotExist] if there is no such setting.
func (s Sysctl) Set(key, value string) error {
	return s.SetAll([]Setting{{Key: key, Value: value}})
}

// SetAll sets several settings like [Sysctl.Set], on one visit to the namespace.
func (s Sysctl) SetAll(settings []Setting) error {
	return s.space.NS.Visit(func() error {
		for _, set := range settings {
			var restore func() error
			apply := func() (err error) {
				restore, err = set.set()
				return err
			}
			undo := func() error { // runs on another visit
				if restore == nil {
					return nil
				}
				err := s.space.NS.Visit(restore)
				if errors.Is(err, fs.ErrNotExist) { // deleted with its link
					return nil
				}
				return err
			}
			if err := s.space.tx.Do(set.String(), apply, undo); err != nil {
				return err
			}
		}
		return nil
	})
}

// Ensure sets shared kernel settings, such as forwarding, unless they have the value. Rollback does
// not revert it.
func (s Sysctl) Ensure(settings []Setting) error { return s.space.Shared().Sysctl.SetAll(settings) }

// Read returns the value of a kernel setting in the namespace, without the final newline. The error
// wraps [fs.ErrNotExist] if there is no such setting.
func (s Sysctl) Read(key string) (value string, err error) {
	err = s.space.NS.Visit(func() error {
		value, err = readSetting(key)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("sysctl %s: %w", key, err)
	}
	return value, nil
}

// Values reads several kernel settings on one visit to the namespace, in their order. It omits
// settings that do not exist or are write-only.
func (s Sysctl) Values(keys []string) (values []Setting, err error) {
	err = s.space.NS.Visit(func() error {
		for _, key := range keys {
			if value, err := readSetting(key); err == nil {
				values = append(values, Setting{Key: key, Value: value})
			}
		}
		return nil
	})
	return values, err
}
