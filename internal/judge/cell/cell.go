package cell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/judge/script"
)

// Name is the name under which [Run] starts the program of the caller, which then must call [Main].
const Name = "tenon-conform-cell"

// recordingFD is the descriptor on which the process inside writes the recording.
const recordingFD = 3

// Run executes a scenario in a cell and returns the recording. An error means that the judge failed,
// not the subject.
func Run(ctx context.Context, s *script.Scenario) (*script.Recording, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	input, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var out *script.Recording
	done := make(chan error, 1)
	go func() {
		// The cell ends with the thread that starts it, and the thread, which lacks capabilities then,
		// with this function.
		runtime.LockOSThread()
		err := dropCapabilities()
		if err == nil {
			out, err = start(ctx, input)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	return out, nil
}

func start(ctx context.Context, input []byte) (*script.Recording, error) {
	results, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer results.Close()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{Name}
	cmd.Env = []string{"PATH=" + searchPath()}
	cmd.Stdin = bytes.NewReader(input)
	var messages bytes.Buffer
	cmd.Stderr = &messages
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  unix.SIGKILL,
		Setsid:     true,
	}
	dir, unlimited := newGroup()
	if unlimited == nil {
		group, err := os.Open(dir)
		if err != nil {
			return nil, errors.Join(err, os.Remove(dir))
		}
		defer func() {
			// The processes have ended, but the kernel counts them until they are collected.
			_ = os.Remove(dir)
			_ = group.Close()
		}()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	}
	if os.Geteuid() != 0 {
		// The network namespace is created after the mapping of users: otherwise the kernel gives the
		// files of x_tables in /proc to an unmapped user (xt_proto_init in net/netfilter/x_tables.c).
		cmd.SysProcAttr.Cloneflags &^= unix.CLONE_NEWNET
		cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWNET
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	err = cmd.Start()
	_ = theirs.Close() // the process has its own
	if err != nil {
		return nil, fmt.Errorf("start a cell: %w", err)
	}
	r, decoded := script.Decode(results)
	if err := cmd.Wait(); err != nil || decoded != nil {
		return nil, errors.Join(context.Cause(ctx), fmt.Errorf("cell: %w: %s", errors.Join(err, decoded), strings.TrimSpace(messages.String())))
	}
	if unlimited != nil {
		r.Unlimited = append(r.Unlimited, fmt.Sprintf("no limit for the memory of processes: %v", unlimited))
	}
	return r, nil
}

// searchPath returns the directories of tools, also where PATH of an unprivileged user lacks them.
func searchPath() string { return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" }

// Main runs the scenario on the standard input in a cell, and returns the exit status of the process.
func Main() int {
	if err := inside(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func inside() error {
	if os.Getpid() != 1 {
		return errors.New("not in a process namespace of its own")
	}
	var s script.Scenario
	if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
		return fmt.Errorf("read the scenario: %w", err)
	}
	if err := limitResources(); err != nil {
		return fmt.Errorf("limits of processes: %w", err)
	}
	memory, err := memoryLimit()
	if err != nil {
		return err
	}
	w := world{memory: memory}
	if err := w.enter(&s); err != nil {
		return fmt.Errorf("set up the cell: %w", err)
	}
	if err := hide(); err != nil {
		return fmt.Errorf("hide the judge: %w", err)
	}
	out := os.NewFile(recordingFD, "recording")
	unix.CloseOnExec(recordingFD)
	l, err := newLauncher()
	if err != nil {
		return err
	}
	p := player{world: &w, launcher: l, recording: script.Recording{Scenario: s}}
	p.play(context.Background())
	p.recording.Skipped, p.recording.Unlimited = w.skipped, w.unlimited
	return p.recording.Encode(out)
}
