package kernel

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/tenon-cni/tenon/internal/sysctl"
)

// Setting is a kernel setting below /proc/sys, see sysctl(8). Keys are written with dots or slashes; when a dot comes
// before the first slash the two are exchanged, so that net.ipv4.conf.eth0/100.forwarding is about eth0.100.
type Setting struct {
	Key, Value string
	Optional   bool // that it cannot be set is no error, unless it can be the next time, see [Exhausted]
}

// Valid reports whether the key can name a setting.
func (s Setting) Valid() bool {
	_, err := sysctl.Path(s.Key)
	return err == nil
}

// Global reports whether the setting acts on the whole host in whichever namespace it is written.
// The key must be written with slashes.
func (s Setting) Global() bool { return sysctl.Global(s.Key) }

// Is reports whether value equals the value of the setting, apart from white space.
func (s Setting) Is(value string) bool { return sysctl.Equal(s.Value, value) }

// NoDAD makes a link of the host that containers are behind not detect duplicates of its own IPv6 addresses: while it
// does for its link-local one it asks for no neighbour, and what others send to the containers waits. It is for links
// that have not come up yet, as a bridge without ports.
func NoDAD(link string) Setting {
	return Setting{Key: "net/ipv6/conf/" + link + "/accept_dad", Value: "0", Optional: true}
}

// Set sets a kernel setting in the namespace unless it has the value. Undone by setting the value before. The error
// wraps [fs.ErrNotExist] if there is no such setting.
func (s Sysctl) Set(key, value string) error {
	return s.SetAll([]Setting{{Key: key, Value: value}})
}

// SetAll sets several settings, each a change as [Sysctl.Set] makes it, on one visit to the namespace.
func (s Sysctl) SetAll(settings []Setting) error {
	return s.space.NS.Visit(func() error {
		for _, set := range settings {
			if err := s.space.sysctl(set); err != nil {
				return err
			}
		}
		return nil
	})
}

// sysctl runs in the namespace, its undo does not.
func (s *Space) sysctl(set Setting) error {
	var old string
	var changed bool
	return s.tx.Do(sysctlOp(set.Key, set.Value),
		func() (err error) {
			old, changed, err = sysctl.Set(set.Key, set.Value)
			if set.Optional && !Exhausted(err) {
				return nil
			}
			return err
		},
		func() error {
			if !changed {
				return nil
			}
			err := s.NS.Visit(func() error { return sysctl.Write(set.Key, old) })
			if errors.Is(err, fs.ErrNotExist) { // gone with its link
				return nil
			}
			return err
		})
}

// Ensure sets kernel settings that others share, such as forwarding, unless they have the value. It is not undone.
func (s Sysctl) Ensure(settings []Setting) error {
	return s.space.NS.Visit(func() error {
		for _, set := range settings {
			if err := s.space.tx.Do(sysctlOp(set.Key, set.Value), func() error {
				_, _, err := sysctl.Set(set.Key, set.Value)
				if set.Optional && !Exhausted(err) {
					return nil
				}
				return err
			}, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// Read returns the value of a kernel setting in the namespace, without the final newline. The error wraps
// [fs.ErrNotExist] if there is no such setting.
func (s Sysctl) Read(key string) (value string, err error) {
	err = s.space.NS.Visit(func() error {
		value, err = sysctl.Read(key)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("sysctl %s: %w", key, err)
	}
	return value, nil
}

// Values reads several kernel settings on one visit to the namespace, in their order. Those that cannot be read are left
// out: there is none, or it can only be written.
func (s Sysctl) Values(keys []string) (values []Setting, err error) {
	err = s.space.NS.Visit(func() error {
		for _, key := range keys {
			if value, err := sysctl.Read(key); err == nil {
				values = append(values, Setting{Key: key, Value: value})
			}
		}
		return nil
	})
	return values, err
}

func sysctlOp(key, value string) string { return fmt.Sprintf("sysctl %s=%s", key, value) }
