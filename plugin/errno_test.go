package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

// TestErrno is ERR-13: errors of the kernel have a code and a hint; code 999 remains for bugs.
func TestErrno(t *testing.T) {
	t.Parallel()
	own := cni.Errorf(cni.CodeInvalidConfig, "mtu: %w", syscall.EPERM)
	for _, row := range []struct {
		name string
		err  error
		code cni.Code
		hint string
	}{
		{"not permitted", fmt.Errorf("add bridge: %w", syscall.EPERM), cni.CodeIOFailure,
			"CAP_NET_RAW"},
		{"no access", &fs.PathError{Op: "open", Path: "/p", Err: syscall.EACCES}, cni.CodeIOFailure,
			"permissions"},
		{"too many open files", fmt.Errorf("socket: %w", syscall.EMFILE), cni.CodeTryAgainLater,
			"ulimit -n"},
		{"too many open files on the host", syscall.ENFILE, cni.CodeTryAgainLater, "fs.file-max"},
		{"no memory", syscall.ENOMEM, cni.CodeTryAgainLater, "try again"},
		{"in use", syscall.EBUSY, cni.CodeTryAgainLater, "try again"},
		{"name in use", fmt.Errorf("link eth0: %w", syscall.EEXIST), plugin.CodeInUse,
			"detach its container"},
		{"disk is full", syscall.ENOSPC, cni.CodeIOFailure, "free space"},
		{"read-only", syscall.EROFS, cni.CodeIOFailure, "read-only"},
		{"any other", syscall.ENETDOWN, cni.CodeIOFailure, ""},
		{"the first of several", errors.Join(syscall.EEXIST, syscall.EPERM), plugin.CodeInUse, ""},
		{"a code of its own", own, cni.CodeInvalidConfig, ""},
		{"a code of its own, and an error of the rollback", errors.Join(own, syscall.EMFILE),
			cni.CodeInvalidConfig, ""},
		{"a bug", errors.New("no result"), cni.CodeInternal, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			d := define(plugin.Info{Name: "demo"},
				verbs(func(context.Context, *call) (*cni.Result, error) {
					return nil, row.err
				}))
			_, err := serve(t, d, environment(cni.Add),
				`{"cniVersion":"1.1.0","name":"net","type":"demo"}`)
			e := cni.AsError(err)
			if e == nil || e.Code != row.code || !strings.Contains(e.Details, row.hint) ||
				!errors.Is(err, row.err) {
				t.Fatalf("got %+v, want code %d and a hint at %q", e, row.code, row.hint)
			}
			if !strings.Contains(err.Error(), row.err.Error()) {
				t.Errorf("%v lost %v", err, row.err)
			}
		})
	}
}
