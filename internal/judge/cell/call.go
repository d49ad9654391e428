package cell

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/judge/script"
)

// limit is the number of bytes that the judge reads from each output of a call, and from each file.
const limit = 1 << 20

// pipeCapacity is the number of bytes that a pipe holds while no process reads from it, also if the
// user has many pipes.
const pipeCapacity = 4 << 10

// kept is the number of bytes of the standard input that a recording contains.
const kept = 64 << 10

// calls executes calls at the same time.
func (p *player) calls(ctx context.Context, calls []script.Call) ([]script.Result, error) {
	known := sessions(processIDs())
	results, outputs := make([]script.Result, len(calls)), make([][]*output, len(calls))
	errs := make([]error, len(calls))
	stop := monitor()
	var all sync.WaitGroup
	var started sync.WaitGroup // processes that get their input at the same time
	ready := make([]func(), len(calls))
	for i := range calls {
		started.Add(1)
		ready[i] = sync.OnceFunc(started.Done)
	}
	for i, c := range calls {
		all.Go(func() {
			defer ready[i]()
			if c.Fault != nil {
				results[i] = p.traced(ctx, c)
				return
			}
			var await func()
			if len(calls) > 1 {
				await = func() { ready[i](); started.Wait() }
			}
			results[i], outputs[i], errs[i] = p.call(ctx, c, await)
		})
	}
	all.Wait()
	if err := p.world.restore(); err != nil {
		return results, err
	}
	first := &results[0]
	first.Survivors = survivors(known)
	for i := range results {
		for _, o := range outputs[i] {
			results[i].Held = o.held() || results[i].Held
			_ = o.reader.Close()
		}
	}
	kill(known)
	first.Forked = stop()
	var err error
	first.Recorded, err = recorded()
	return results, errors.Join(cmp.Or(errs...), err)
}

// call executes one call, which gets its input after await; at its start if that is nil. All failures of
// the subject are part of the result; the error is about the judge, which may lack file descriptors. The
// caller closes the outputs.
func (p *player) call(ctx context.Context, c script.Call, await func()) (r script.Result, outputs []*output, err error) {
	stdin := c.Stdin.Expand(p.output)
	r.Name, r.Stdin, r.Status = c.Name, stdin[:min(len(stdin), kept)], -1
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.Deadline, script.DefaultDeadline))
	defer cancel()
	var flooded atomic.Bool
	full := func() { flooded.Store(true); cancel() }
	stdout, err := newOutput(full)
	if err != nil {
		return r, nil, err
	}
	stderr, err := newOutput(full)
	if err != nil {
		return r, []*output{stdout}, err
	}
	outputs = []*output{stdout, stderr}
	defer stdout.writer.Close() // begin has closed it if the process has started
	defer stderr.writer.Close()
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Env = append([]string{}, c.Env...) // nil stands for the environment of this process
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdout, cmd.Stderr = stdout.writer, stderr.writer
	input, err := cmd.StdinPipe()
	if err != nil {
		return r, outputs, err
	}
	early := await == nil && !c.Open && len(stdin) <= pipeCapacity
	if early {
		_, _ = input.Write(stdin) // into the pipe, so that the process never waits for it
		_ = input.Close()
	}
	begin := time.Now()
	if err := p.launcher.start(cmd); errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return r, outputs, err
	} else if err != nil {
		r.Failed = cmp.Or(errors.Unwrap(err), err).Error()
		return r, outputs, nil
	}
	stdout.begin()
	stderr.begin()
	if !early {
		go func() {
			if await != nil {
				await()
			}
			_, _ = input.Write(stdin) // a subject need not read its input
			if !c.Open {
				_ = input.Close()
			}
		}()
	}
	_ = cmd.Wait() // ProcessState has the status
	r.Took = time.Since(begin)
	r.Late = errors.Is(ctx.Err(), context.DeadlineExceeded)
	stdout.end()
	stderr.end()
	r.Flooded = flooded.Load()
	r.Stdout, r.Stderr = stdout.data, stderr.data
	r.Status = cmd.ProcessState.ExitCode()
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		r.Signal = int(w.Signal())
	}
	return r, outputs, nil
}

// output reads the first bytes of an output until the process has ended. Other processes may keep it
// open for longer.
type output struct {
	reader, writer *os.File
	full           func() // called when there are more bytes
	data           []byte
	done           chan struct{}
}

// chunk has the size of a pipe. A cell makes hundreds of calls, and chunks that it keeps spare it most page
// faults.
type chunk [64 << 10]byte

var chunks = sync.Pool{New: func() any { return new(chunk) }}

func newOutput(full func()) (*output, error) {
	r, w, err := os.Pipe()
	return &output{reader: r, writer: w, full: full, done: make(chan struct{})}, err
}

// begin reads in the background. The process has its own copy of the writer.
func (o *output) begin() {
	_ = o.writer.Close()
	go func() {
		defer close(o.done)
		b := chunks.Get().(*chunk)
		defer chunks.Put(b)
		for {
			n, err := o.reader.Read(b[:])
			if !o.add(b[:n]) || err != nil {
				return
			}
		}
	}()
}

// add keeps bytes, and reports whether more are welcome.
func (o *output) add(b []byte) bool {
	rest := limit - len(o.data)
	o.data = append(o.data, b[:min(len(b), rest)]...)
	if len(b) > rest {
		o.full()
	}
	return len(b) <= rest
}

// end reads what the process wrote before it ended.
func (o *output) end() {
	_ = o.reader.SetReadDeadline(time.Unix(1, 0))
	<-o.done
	_ = o.reader.SetReadDeadline(time.Time{})
	b := chunks.Get().(*chunk)
	defer chunks.Put(b)
	for {
		n, err := o.now(b[:])
		if err != nil || n == 0 || !o.add(b[:n]) {
			return
		}
	}
}

// held reports whether a process keeps the output open. The process may still write to it.
func (o *output) held() bool {
	b := chunks.Get().(*chunk)
	defer chunks.Put(b)
	for range 16 {
		n, err := o.now(b[:])
		if err != nil || n == 0 {
			return errors.Is(err, unix.EAGAIN)
		}
	}
	return true
}

// now reads without waiting. It returns 0 at the end, and EAGAIN if there is nothing yet.
func (o *output) now(b []byte) (n int, err error) {
	raw, failed := o.reader.SyscallConn()
	if failed != nil {
		return 0, failed
	}
	failed = raw.Read(func(fd uintptr) bool {
		for n, err = unix.Read(int(fd), b); err == unix.EINTR; n, err = unix.Read(int(fd), b) {
		}
		return true
	})
	return n, cmp.Or(err, failed)
}
