package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netns"
)

// Setting is a kernel setting below /proc/sys, see sysctl(8). Keys are written with dots or
// slashes. If a dot precedes the first slash, dots and slashes are exchanged in the whole key, so
// that net.ipv4.conf.eth0/100.arp_notify and net/ipv4/conf/eth0.100/arp_notify are the same
// (sysctl.d(5)). One leading slash is ignored.
type Setting struct {
	Key, Value string

	// Optional means that failing to set it is not an error, unless the next attempt could succeed,
	// see [Exhausted].
	Optional bool
}

// globalSettings are the settings below net that exist in every network namespace, can be written
// in it, and act on the whole host.
//
// All other settings that act on the host exist in the first namespace only (most of net/core,
// nf_conntrack_max of net, memory limits of TCP and UDP, thresholds of neighbour tables), or can be
// written there only: since 5.13 the kernel removes the write permission from settings that have
// one value for all namespaces. TestGlobal measures it for the kernel it runs on.
var globalSettings = []string{
	// A switch in code rather than a value, so the kernel does not recognize it as global.
	// Once on, it stays on.
	"net/netfilter/nf_hooks_lwtunnel",

	// Writable in every namespace before 5.13 (CVE-2021-38209).
	"net/ipv4/tcp_allowed_congestion_control",
	"net/netfilter/nf_conntrack_buckets",
	"net/netfilter/nf_conntrack_expect_max",
	"net/netfilter/nf_conntrack_max",
}

// NoDAD returns the setting that turns duplicate address detection off for a link of the host with
// containers behind it. While the kernel checks the link-local address of the link, it sends no
// neighbour solicitations, and packets to the containers wait. The setting is for links that have
// not come up yet, such as a bridge without ports.
func NoDAD(link string) Setting {
	return Setting{Key: "net/ipv6/conf/" + link + "/accept_dad", Value: "0", Optional: true}
}

// Valid reports whether the key can name a setting.
func (s Setting) Valid() bool {
	_, err := settingPath(s.Key)
	return err == nil
}

// Global reports whether the setting acts on the whole host, whatever namespace it is written in.
// The key must be written with slashes.
func (s Setting) Global() bool { return slices.Contains(globalSettings, s.Key) }

// Is reports whether value equals the value of the setting. Values are equal if their fields are:
// the kernel separates with tabs, users separate with spaces.
func (s Setting) Is(value string) bool {
	return slices.Equal(strings.Fields(s.Value), strings.Fields(value))
}

func (s Setting) String() string { return "sysctl " + s.Key + "=" + s.Value }

var errSettingKey = errors.New("invalid sysctl key")

// settingPath returns the file of a setting. The error wraps [errSettingKey].
func settingPath(key string) (string, error) {
	k := strings.TrimPrefix(key, "/")
	if i := strings.IndexAny(k, "./"); i >= 0 && k[i] == '.' {
		k = strings.NewReplacer(".", "/", "/", ".").Replace(k)
	}
	for part := range strings.SplitSeq(k, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsRune(part, 0) {
			return "", fmt.Errorf("%w %q", errSettingKey, key)
		}
	}
	return path.Join("/proc/sys", k), nil
}

// readSetting returns a value in the namespace of the calling thread, without the final newline.
// The error wraps [fs.ErrNotExist] if there is no such setting.
func readSetting(key string) (string, error) {
	file, err := settingPath(key)
	if err != nil {
		return "", err
	}
	value, err := netns.ReadFile(file)
	return strings.TrimSuffix(value, "\n"), err
}

// write sets the value in the namespace of the calling thread. It writes an empty value as an empty
// line, because writing nothing would change nothing. The error wraps [fs.ErrNotExist] if there is
// no such setting.
func (s Setting) write() error {
	file, err := settingPath(s.Key)
	if err != nil {
		return err
	}
	if s.Value == "" {
		s.Value = "\n"
	}
	return netns.WriteFile(file, s.Value)
}

// set writes the value in the namespace of the calling thread unless the setting has it. restore
// writes the former value, and is nil if set changed nothing. set writes a setting that exists but
// cannot be read (a command, such as net/ipv4/route/flush, or a secret that has not been set); this
// does not count as a change, because the former value is unknown.
func (s Setting) set() (restore func() error, err error) {
	old, err := readSetting(s.Key)
	switch {
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EIO):
		err = s.write()
	case err == nil && !s.Is(old):
		if err = s.write(); err == nil {
			restore = Setting{Key: s.Key, Value: old}.write
		}
	}
	if s.Optional && !Exhausted(err) {
		err = nil
	}
	return restore, err
}
