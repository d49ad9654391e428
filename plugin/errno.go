package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/tenon-cni/tenon/cni"
)

// CodeInUse is the code of an error that an object, such as a port of the host or the name of an
// interface, is in use by another attachment.
const CodeInUse cni.Code = 100

// errnos are the codes and hints of errors of the kernel that have no code of their own.
var errnos = []struct {
	list []syscall.Errno
	code cni.Code
	hint string
}{
	{
		[]syscall.Errno{syscall.EMFILE, syscall.ENFILE}, cni.CodeTryAgainLater,
		"the limit of open files is reached: raise it (ulimit -n, LimitNOFILE= of systemd, fs.file-max)",
	},
	{
		[]syscall.Errno{syscall.ENOMEM, syscall.ENOBUFS, syscall.EAGAIN, syscall.EINTR}, cni.CodeTryAgainLater,
		"the kernel is short of memory or of processes: try again later",
	},
	{
		[]syscall.Errno{syscall.EBUSY}, cni.CodeTryAgainLater,
		"another process is using the object: try again later",
	},
	{
		[]syscall.Errno{syscall.EPERM}, cni.CodeIOFailure,
		"run the plugin as root, or with CAP_NET_ADMIN and CAP_SYS_ADMIN; a seccomp filter or a security module may refuse it too",
	},
	{
		[]syscall.Errno{syscall.EACCES}, cni.CodeIOFailure,
		"check the permissions of the path, and what AppArmor or SELinux allow the plugin",
	},
	{
		[]syscall.Errno{syscall.EEXIST, syscall.EADDRINUSE}, CodeInUse,
		"delete what has the name or the address, or detach the container that it belongs to",
	},
	{
		[]syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}, cni.CodeIOFailure,
		"free space on the file system",
	},
	{
		[]syscall.Errno{syscall.EROFS}, cni.CodeIOFailure,
		"the file system is read-only: use a directory on another one",
	},
}

// coded gives an error the code and the hint that its cause calls for. An error with another code than
// [cni.CodeInternal] keeps it. Without a code remain bugs, what CHECK finds, and what a plugin has no code for.
func coded(ctx context.Context, verb cni.Command, err error) error {
	if err == nil {
		return nil
	}
	code := cni.CodeOf(err)
	if ctx.Err() != nil && code == cni.CodeInternal {
		return interrupted(ctx, verb, err)
	}
	var errno syscall.Errno
	if code != cni.CodeInternal || !errors.As(err, &errno) {
		return err
	}
	e := *cni.AsError(err)
	e.Code = cni.CodeIOFailure
	for _, known := range errnos {
		if slices.Contains(known.list, errno) {
			e.Code = known.code
			e.Details = strings.TrimPrefix(e.Details+"; "+known.hint, "; ")
			break
		}
	}
	return &e
}

// interrupted returns the error of a call that SIGTERM, SIGINT or a deadline ended.
func interrupted(ctx context.Context, verb cni.Command, err error) error {
	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	details := "call it again"
	if verb == cni.Add {
		details = "ADD has removed what it had made; call it again"
	}
	return cni.Errorf(cni.CodeTryAgainLater, "%s interrupted: %w", verb, err).WithDetails(details)
}
