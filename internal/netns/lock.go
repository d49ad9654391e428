package netns

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/trace"
)

// Lock takes the lock of the namespace, waiting until ctx is done. All handles on a namespace, in
// all processes, share one lock: flock(2) on its nsfs inode. unlock must be called once. The kernel
// releases the lock at the latest when the process ends.
func (n *NS) Lock(ctx context.Context) (unlock func(), err error) {
	// Locks belong to open files: a file of its own excludes other goroutines as well as processes.
	fd, err := unix.Open(fdPath(os.Getpid(), n.Fd()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("lock network namespace %s: %w", n, err)
	}
	release := func() { unix.Close(fd) }
	if flock(fd, unix.LOCK_NB) == nil {
		return release, nil
	}
	if s := trace.From(ctx); s != nil {
		wait := s.Waiting("lock", "lock network namespace "+n.String())
		defer func() { wait.End(err) }()
	}
	got := make(chan error, 1)
	go func() { got <- flock(fd, 0) }()
	select {
	case err = <-got:
	case <-ctx.Done():
		err = context.Cause(ctx)
		go func() { <-got; release() }() // flock cannot be interrupted
		return nil, fmt.Errorf("lock network namespace %s: %w", n, err)
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("lock network namespace %s: %w", n, err)
	}
	return release, nil
}

func flock(fd, flags int) error {
	for {
		if err := unix.Flock(fd, unix.LOCK_EX|flags); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
