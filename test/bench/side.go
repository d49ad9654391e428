package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
)

// side is one of the two implementations, with a host namespace and state directories of its own.
type side struct {
	name    string
	from    string // directory of the binaries
	plugins string // of their copies
	state   string
	host    string // path of the network namespace the plugins are started in
}

func newSide(work, name, programs, plugins string) (*side, error) {
	s := &side{name: name, from: plugins, state: filepath.Join(work, name+"-state")}
	if err := os.Mkdir(s.state, 0o755); err != nil {
		return nil, err
	}
	var err error
	if s.plugins, err = copyPrograms(programs, name, plugins); err != nil {
		return nil, err
	}
	s.host, err = s.newNamespace("host")
	return s, err
}

// copyPrograms copies a directory of programs with their hard links, and returns the path of the
// copy. A program starts faster if its file was written in one piece (see package install), so both
// sides are copied in the same way.
func copyPrograms(to, name, from string) (string, error) {
	to = filepath.Join(to, name)
	if err := os.Mkdir(to, 0o755); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return "", err
	}
	copies := map[uint64]string{} // by inode
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(from, e.Name()))
		if err != nil {
			return "", err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		program, inode := filepath.Join(to, e.Name()), info.Sys().(*syscall.Stat_t).Ino
		if first, ok := copies[inode]; ok {
			if err := os.Link(first, program); err != nil {
				return "", err
			}
			continue
		}
		copies[inode] = program
		content, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err == nil {
			err = os.WriteFile(program, content, info.Mode().Perm())
		}
		if err != nil {
			return "", err
		}
	}
	return to, nil
}

// has reports whether the implementation has a plugin of this name.
func (s *side) has(plugin string) bool {
	_, err := os.Stat(filepath.Join(s.plugins, plugin))
	return err == nil
}

// supports asks the plugin whether it speaks a protocol version.
func (s *side) supports(ctx context.Context, plugin, version string) (bool, error) {
	out, _, err := s.run(ctx, call{plugin: plugin, verb: "VERSION", conf: []byte(`{"cniVersion":"1.0.0"}`)})
	if err != nil {
		return false, err
	}
	reply, err := cni.DecodeVersionReply(out)
	return slices.Contains(reply.Supported, version), err
}

// newNamespace creates a network namespace and returns the path of its bind mount.
func (s *side) newNamespace(name string) (string, error) {
	path := filepath.Join(s.state, "netns-"+name)
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		return "", err
	}
	return path, onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("new network namespace: %w", err)
		}
		own := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		if err := unix.Mount(own, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind network namespace to %s: %w", path, err)
		}
		return nil
	})
}

// inHost calls f on a thread in the side's host namespace. Processes that f starts run there too.
func (s *side) inHost(f func() error) error {
	return onThread(func() error {
		ns, err := os.Open(s.host)
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter %s: %w", s.host, err)
		}
		return f()
	})
}

// onThread calls f on a thread that ends afterwards, because f may change its state.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// call describes one start of a plugin.
type call struct {
	plugin, verb     string
	container, netns string
	conf             []byte
	wrapper          []string // command to start the plugin through, or nil
}

// run starts the plugin in the current namespace and returns its output and duration.
func (s *side) run(ctx context.Context, c call) ([]byte, time.Duration, error) {
	stdin, err := filled(c.conf)
	if err != nil {
		return nil, 0, err
	}
	defer stdin.Close()
	output, stdout, err := os.Pipe()
	if err != nil {
		return nil, 0, err
	}
	defer output.Close()

	args := append(c.wrapper, filepath.Join(s.plugins, c.plugin))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout = stdin, stdout
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "CNI_PATH=" + s.plugins, "CNI_COMMAND=" + c.verb,
		"CNI_CONTAINERID=" + c.container, "CNI_NETNS=" + c.netns, "CNI_IFNAME=eth0",
	}
	start := time.Now()
	err = cmd.Run()
	took := time.Since(start)
	stdout.Close()
	out, readErr := io.ReadAll(output)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %s %s: %w: %s", s.name, c.plugin, c.verb, err, out)
	}
	return out, took, readErr
}

// filled returns the reading end of a pipe that already contains all the bytes.
func filled(content []byte) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if _, err := w.Write(content); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// network returns a configuration; the two sides differ only in their state directories.
type network struct {
	name     string
	version  string
	dual     bool
	masq     bool
	portMaps bool
}

// bridgeConf returns the configuration of the bridge plugin, with a previous result if there is
// one.
func (s *side) bridgeConf(n network, prev []byte) []byte {
	return s.conf(n, prev, map[string]any{"type": "bridge", "bridge": "br-" + n.name, "isGateway": true, "ipMasq": n.masq})
}

// portmapConf returns the configuration of the portmap plugin for one port of container number i.
func (s *side) portmapConf(n network, i int, prev []byte) []byte {
	ports := []any{map[string]any{"hostPort": 10000 + i, "containerPort": 80, "protocol": "tcp"}}
	return s.conf(n, prev, map[string]any{
		"type": "portmap", "capabilities": map[string]bool{"portMappings": true},
		"runtimeConfig": map[string]any{"portMappings": ports},
	})
}

func (s *side) conf(n network, prev []byte, keys map[string]any) []byte {
	ranges := [][]any{{map[string]string{"subnet": "10.77.0.0/16"}}}
	if n.dual {
		ranges = append(ranges, []any{map[string]string{"subnet": "fd77::/64"}})
	}
	keys["cniVersion"], keys["name"] = n.version, n.name
	keys["ipam"] = map[string]any{"type": "host-local", "dataDir": filepath.Join(s.state, "leases"), "ranges": ranges}
	if prev != nil {
		keys["prevResult"] = json.RawMessage(prev)
	}
	conf, err := json.Marshal(keys)
	if err != nil {
		panic(err) // impossible: the maps hold strings, numbers and valid JSON
	}
	return conf
}

// countProcesses returns the number of processes that a call starts beyond the plugin, counted by
// strace.
func (s *side) countProcesses(ctx context.Context, c call) (int, error) {
	trace := filepath.Join(s.state, "trace")
	c.wrapper = []string{"strace", "-f", "-qq", "-e", "trace=execve", "-e", "status=successful", "-o", trace}
	if _, _, err := s.run(ctx, c); err != nil {
		return 0, err
	}
	lines, err := os.ReadFile(trace)
	if err != nil {
		return 0, err
	}
	return strings.Count(string(lines), "execve(") - 1, nil
}
