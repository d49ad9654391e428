package cell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/tenon-cni/tenon/internal/judge/script"
)

// player executes the steps of a scenario.
type player struct {
	world     *world
	launcher  launcher
	recording script.Recording
}

func (p *player) play(ctx context.Context) {
	begin := time.Now()
	if err := p.steps(ctx); err != nil {
		p.recording.Broken = err.Error()
	}
	p.recording.Took = time.Since(begin)
}

func (p *player) steps(ctx context.Context) (err error) {
	s := &p.recording.Scenario
	if err := writeFiles(s.Files); err != nil {
		return err
	}
	for i, step := range s.Steps {
		if !step.Quiet && p.recording.Start == nil {
			if p.recording.Start, err = p.world.snapshot(ctx); err != nil {
				return err
			}
		}
		e, err := p.step(ctx, step)
		e.Step = i
		if err != nil {
			err = fmt.Errorf("step %d: %w", i, err)
		} else if !step.Quiet {
			e.After, err = p.world.snapshot(ctx)
		}
		p.recording.Events = append(p.recording.Events, e)
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *player) step(ctx context.Context, step script.Step) (e script.Event, err error) {
	switch {
	case step.Container != nil:
		return e, create(step.Container)
	case step.Daemon != "":
		return e, p.daemon(ctx, step)
	case step.Shell != "":
		e.Output, e.Status, err = shell(ctx, step.Shell)
		if err == nil && e.Status != 0 && !step.Try {
			err = fmt.Errorf("exit status %d: %s", e.Status, e.Output)
		}
	default:
		e.Calls, err = p.calls(ctx, step.Calls)
	}
	return e, err
}

func (p *player) output(name string) []byte {
	r, _ := p.recording.Call(name)
	return r.Stdout
}

// daemon starts a process that stays until the end of the scenario, and waits until it is ready.
func (p *player) daemon(ctx context.Context, step script.Step) error {
	if err := mkdirFor(script.DaemonLog); err != nil {
		return err
	}
	log, err := os.OpenFile(script.DaemonLog, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the daemon has its own
	cmd := exec.Command("sh", "-e", "-u", "-c", step.Daemon)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.launcher.start(cmd); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if step.Shell == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, script.DefaultDeadline)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		output, status, err := shell(ctx, step.Shell)
		if err == nil && status == 0 {
			tick.Stop()
			return nil
		}
		select {
		case err := <-ended:
			if err != nil { // a daemon may go to the background
				return fmt.Errorf("the daemon has ended: %w: %s", err, readSome(script.DaemonLog))
			}
			ended = nil
		case <-ctx.Done():
			return fmt.Errorf("the daemon is not ready after %s: %s%s", script.DefaultDeadline, output, readSome(script.DaemonLog))
		case <-tick.C:
		}
	}
}

// shell executes a text with sh(1). The error is about the shell itself.
func shell(ctx context.Context, text string) (output string, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, script.DefaultDeadline)
	defer cancel()
	o, err := newOutput(cancel)
	if err != nil {
		return "", 0, err
	}
	defer o.reader.Close()
	defer o.writer.Close() // begin has closed it if the shell has started
	cmd := exec.CommandContext(ctx, "sh", "-e", "-u", "-c", text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdout, cmd.Stderr = o.writer, o.writer
	if err := cmd.Start(); err != nil {
		return "", 0, err
	}
	o.begin()
	err = cmd.Wait()
	o.end() // a process in the background may keep it open
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return string(o.data), exit.ExitCode(), context.Cause(ctx)
	}
	return string(o.data), 0, err
}

func writeFiles(files []script.File) error {
	for _, f := range files {
		mode := os.FileMode(f.Mode)
		if mode == 0 {
			mode = 0o644
		}
		if err := mkdirFor(f.Path); err != nil {
			return err
		}
		if err := os.WriteFile(f.Path, []byte(f.Data), mode); err != nil {
			return err
		}
	}
	return nil
}
