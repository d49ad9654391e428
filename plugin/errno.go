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

// CodeInUse is the code of an error that reports that another attachment uses an object, such as a
// host port or an interface name.
const CodeInUse cni.Code = 100

// errnos maps errors of the kernel to codes and hints.
var errnos = []struct {
	list []syscall.Errno
	code cni.Code
	hint string
}{
	{
		[]syscall.Errno{syscall.EMFILE, syscall.ENFILE}, cni.CodeTryAgainLater,
		"raise the limit of open files (ulimit -n, LimitNOFILE= of systemd, fs.file-max)",
	},
	{
		[]syscall.Errno{syscall.ENOMEM, syscall.ENOBUFS, syscall.EAGAIN, syscall.EINTR},
		cni.CodeTryAgainLater,
		"the kernel has run out of memory or processes: try again later",
	},
	{
		[]syscall.Errno{syscall.EBUSY}, cni.CodeTryAgainLater,
		"another process is using the object: try again later",
	},
	{
		[]syscall.Errno{syscall.EPERM}, cni.CodeIOFailure,
		"run the plugin as root, or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN; " +
			"if it has them, check for a seccomp filter or a security module that denies the operation",
	},
	{
		[]syscall.Errno{syscall.EACCES}, cni.CodeIOFailure,
		"check the permissions of the path and the AppArmor or SELinux policy of the plugin",
	},
	{
		[]syscall.Errno{syscall.EEXIST, syscall.EADDRINUSE}, CodeInUse,
		"delete the object that has the name or the address, or detach its container",
	},
	{
		[]syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}, cni.CodeIOFailure,
		"free space or raise the quota on the file system",
	},
	{
		[]syscall.Errno{syscall.EROFS}, cni.CodeIOFailure,
		"the file system is read-only: use a directory on a writable one",
	},
}

// coded adds the code and the hint for its cause to an error without a code. Errors with a code
// other than [cni.CodeInternal] keep it. The errors that remain without a code are bugs,
// differences found by CHECK, and errors for which the plugin has no code.
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

// interrupted returns the error of a call that was ended by SIGTERM, SIGINT or a deadline.
func interrupted(ctx context.Context, verb cni.Command, err error) error {
	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	details := "try again"
	if verb == cni.Add {
		details = "ADD has rolled back its changes; try again"
	}
	return cni.Errorf(cni.CodeTryAgainLater, "%s interrupted: %w", verb, err).WithDetails(details)
}
