package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// sideNames are the names of the programs, in the order of the columns.
var sideNames = [3]string{"upstream", "processes", "linked"}

// side is one of the three programs, which waits for requests.
type side struct {
	name    string
	program string
	next    int // number of the next container
	cmd     *exec.Cmd
	in      io.Closer
	encoder *json.Encoder
	decoder *json.Decoder
}

// request and reply have the fields of package speed.
type request struct{ First, Workers, Each int }

type reply struct {
	Setups, Removes        []time.Duration
	Elapsed, Own, Children time.Duration
	Error                  string
}

// start starts a program in namespaces of its own, with its own copy of the plugins.
func (o options) start(ctx context.Context, work, name, plugins string) (*side, error) {
	s := &side{name: name, program: filepath.Join(o.programs, name)}
	dir, state := filepath.Join(work, name), filepath.Join(work, name+"-state")
	if err := errors.Join(copyPlugins(dir, plugins), os.Mkdir(state, 0o755)); err != nil {
		return nil, err
	}
	args := []string{"-plugins", dir}
	if o.disk {
		args = append(args, "-state", state)
	}
	s.cmd = exec.CommandContext(ctx, s.program, args...)
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL,
	}
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.in, s.encoder, s.decoder = in, json.NewEncoder(in), json.NewDecoder(out)
	return s, s.cmd.Start()
}

// copyPlugins copies the plugins of the chain with their hard links: a plugin of Tenon calls
// host-local in its own process only if both are the same file. A program starts faster if its file
// was written in one piece, so all sides are copied in the same way.
func copyPlugins(to, from string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	copies := map[uint64]string{} // by inode
	for _, name := range []string{"bridge", "host-local", "portmap"} {
		source, target := filepath.Join(from, name), filepath.Join(to, name)
		info, err := os.Stat(source)
		if err != nil {
			return err
		}
		inode := info.Sys().(*syscall.Stat_t).Ino
		if first, ok := copies[inode]; ok {
			err = os.Link(first, target)
		} else {
			err = copyFile(target, source)
			copies[inode] = target
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(to, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}

// attach makes the program attach and remove containers with new numbers.
func (s *side) attach(workers, each int) (r reply, err error) {
	q := request{First: s.next, Workers: workers, Each: each}
	s.next += workers * each
	if err := s.encoder.Encode(q); err != nil {
		return r, fmt.Errorf("%s: %w", s.name, err)
	}
	if err := s.decoder.Decode(&r); err != nil {
		return r, fmt.Errorf("%s: %w", s.name, err)
	}
	if r.Error != "" {
		return r, fmt.Errorf("%s: %s", s.name, r.Error)
	}
	return r, s.verify(r)
}

// verify compares the processor time of children with the purpose of the side. A linked program
// that started a process would otherwise measure something else unnoticed.
func (s *side) verify(r reply) error {
	if started, linked := r.Children > 0, s.name == "linked"; started == linked {
		return fmt.Errorf("%s: its child processes took %v", s.name, r.Children)
	}
	return nil
}

// stop ends the program by ending its input.
func (s *side) stop() error {
	s.in.Close()
	return s.cmd.Wait()
}
