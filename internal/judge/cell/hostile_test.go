package cell_test

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/judge/cell"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// subject writes a program in the language of sh(1) on the host.
func subject(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "subject")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// attack runs a hostile subject, and then a harmless call, which must work.
func attack(t *testing.T, text string, change func(*script.Call)) (script.Result, *script.Recording) {
	t.Helper()
	result, r := destroy(t, text, change)
	if result, ok := r.Call("after"); !ok || result.Status != 0 || len(result.Recorded) != 1 {
		t.Errorf("the call after the attack: %+v", result)
	}
	return result, r
}

// destroy runs a hostile subject, which may make its cell useless.
func destroy(t *testing.T, text string, change func(*script.Call)) (script.Result, *script.Recording) {
	t.Helper()
	testnet.Require(t, testnet.Root)
	program := subject(t, text)
	call := script.Call{Name: "attack", Path: script.Plugins + "/subject",
		Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}
	if change != nil {
		change(&call)
	}
	after := script.Call{Name: "after", Path: script.Plugins + "/probe"}
	r, err := cell.Run(t.Context(), &script.Scenario{
		Name: t.Name(), Programs: []string{program}, Files: []script.File{script.RecorderFile("probe")},
		Steps: []script.Step{{Calls: []script.Call{call}}, {Calls: []script.Call{after}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Broken != "" {
		t.Fatal(r.Broken)
	}
	result, _ := r.Call("attack")
	return result, r
}

func TestHang(t *testing.T) {
	t.Parallel()
	r, _ := attack(t, "trap '' TERM INT HUP\nsleep 1000", func(c *script.Call) { c.Deadline = time.Second })
	if !r.Late || r.Signal != int(unix.SIGKILL) || !slices.Contains(r.Survivors, "sleep") {
		t.Errorf("%+v", r)
	}
}

func TestWaitOnInput(t *testing.T) {
	t.Parallel()
	r, _ := attack(t, "cat", func(c *script.Call) { c.Deadline, c.Open = time.Second, true })
	if !r.Late {
		t.Errorf("%+v", r)
	}
	r, _ = attack(t, "cat; echo end", nil) // the input is closed otherwise
	if r.Late || string(r.Stdout) != "end\n" {
		t.Errorf("%+v", r)
	}
}

func TestFlood(t *testing.T) {
	t.Parallel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, _ := attack(t, "yes >&2 & yes", nil)
	runtime.ReadMemStats(&after)
	if !r.Flooded || len(r.Stdout) > 1<<20 || len(r.Stderr) > 1<<20 || len(r.Stdout)+len(r.Stderr) < 1<<20 {
		t.Errorf("flooded: %v, %d and %d bytes", r.Flooded, len(r.Stdout), len(r.Stderr))
	}
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 64<<20 {
		t.Errorf("the memory of the judge grew by %d bytes", grown)
	}
}

func TestExactOutput(t *testing.T) {
	t.Parallel()
	r, _ := attack(t, "head -c 1048576 /dev/zero", nil)
	if r.Flooded || len(r.Stdout) != 1<<20 || r.Status != 0 {
		t.Errorf("flooded: %v, %d bytes, status %d", r.Flooded, len(r.Stdout), r.Status)
	}
}

func TestForkBomb(t *testing.T) {
	t.Parallel()
	testnet.Long(t)
	r, _ := attack(t, "bomb() { bomb & bomb & wait; }\nbomb", nil)
	if !r.Forked {
		t.Errorf("%+v", r)
	}
}

func TestDaemonOfSubject(t *testing.T) {
	t.Parallel()
	r, _ := attack(t, "echo answer; setsid sleep 1000 & exit 0", nil)
	if !slices.Equal(r.Survivors, []string{"sleep"}) || !r.Held || string(r.Stdout) != "answer\n" || r.Status != 0 {
		t.Errorf("%+v", r)
	}
	r, _ = attack(t, "setsid sleep 1000 </dev/null >/dev/null 2>&1 & exit 0", nil)
	if !slices.Equal(r.Survivors, []string{"sleep"}) || r.Held {
		t.Errorf("%+v", r)
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"-1", "0", "1", "$PPID", "-$PPID"} {
		r, _ := attack(t, "kill -9 "+target+"\necho left", nil)
		if r.Late || len(r.Survivors) > 0 {
			t.Errorf("kill %s: %+v", target, r)
		}
	}
}

// TestOwnBinary deletes and changes the program. The judge compares it on the host.
func TestOwnBinary(t *testing.T) {
	t.Parallel()
	const text = "rm -f $0; echo x >$0; mv $0 $0.old; echo x >>$0; umount -l $0; rm $0\n"
	path := subject(t, text)
	before := sum(t, path)
	r, err := cell.Run(t.Context(), &script.Scenario{Name: "binary", Programs: []string{path}, Steps: []script.Step{
		{Calls: []script.Call{{Name: "a", Path: script.Plugins + "/subject"}}}}})
	if err != nil || r.Broken != "" {
		t.Fatal(err, r)
	}
	if sum(t, path) != before {
		t.Error("the program on the host has changed")
	}
}

func sum(t *testing.T, path string) [32]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}

// TestEscape tries to reach the host. Each line of the subject's output names a way that worked.
func TestEscape(t *testing.T) {
	t.Parallel()
	target := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(target, []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	home, err := filepath.Abs("cell.go") // a file that is visible in the cell
	if err != nil {
		t.Fatal(err)
	}
	digest := sum(t, home)
	now := time.Now()
	r, _ := destroy(t, strings.NewReplacer("TARGET", target, "HOME", home).Replace(`
exec 2>/dev/null
ok() { echo "$*"; }
for f in TARGET HOME /etc/passwd /usr/conform-escape /bin/conform-escape /root/conform-escape /conform-escape; do
	echo x >>$f && case $f in /etc/*);; *) ok write $f;; esac
done
mount -o remount,rw / && ok remount /
mount -o remount,rw,bind / && ok bind remount /
for d in /usr /etc /root /proc /sys /proc/sys /work; do
	[ -d $d ] && mount -o remount,rw,bind $d && ok remount $d
done
for type in devtmpfs proc sysfs cgroup cgroup2 debugfs tracefs securityfs tmpfs bpf; do
	mount -t $type x /mnt && ok mount $type
done
mkdir -p /run/m; mount --bind /usr /run/m && { echo x >/run/m/conform-escape && ok write through a bind mount; }
mount -o remount,rw,bind /run/m && ok remount the bind mount
for d in /run /var /tmp /dev /sys /proc/sys/net; do umount -l $d; done
[ -n "$(find /var /tmp /sys -mindepth 1)" ] && ok files below mounts
umount -l /proc
[ -e /proc/1 ] && ok processes
mount -t proc x /proc && ok mount proc
for c in 1 2 3; do chroot . /bin/sh -c "echo x >TARGET" && ok chroot; done
mknod /run/disk b 254 0 && ok mknod
dd if=/dev/vda of=/dev/null count=1 && ok read a disk
`), nil)
	if len(r.Stdout) > 0 {
		t.Errorf("ways out of the cell:\n%s", r.Stdout)
	}
	r, _ = attack(t, `
exec 2>/dev/null
ok() { echo "$*"; }
for f in /proc/sys/kernel/hostname /proc/sys/kernel/panic /proc/sys/vm/swappiness /proc/sys/fs/file-max /proc/sysrq-trigger; do
	v=$(cat $f) || v=0
	echo $v >$f && ok write $f
done
nsenter -t 1 -m -n -p -i -u sh -c 'ls /proc | grep -c "^[0-9]"' | grep -q '^[0-9][0-9][0-9]' && ok other processes
nsenter -t 1 -m sh -c 'echo x >/usr/conform-escape' && ok nsenter
unshare -m sh -c 'mount -o remount,rw,bind /usr; echo x >/usr/conform-escape' && ok unshare
unshare -Urm sh -c 'mount -o remount,rw,bind /usr; echo x >/usr/conform-escape' && ok unshare user
insmod /lib/x.ko 2>&1 | grep -qv -i 'not permitted\|not found\|no such' && ok insmod
date -s @0 >/dev/null && ok date
hwclock --systohc && ok hwclock
swapoff -a -v | grep -q . && ok swapoff
chattr +i /usr && ok chattr
fsfreeze -f / && ok freeze
renice -n -20 $$ && ok renice
chrt -f 50 true && ok real time
ulimit -u unlimited -n 10000000 && ok ulimit
for f in /proc/1/fd/*; do [ -e $f ] && ok descriptors of the judge; done
for f in 3 4 5 6 7 8; do (echo '{}' >/proc/1/fd/$f) && ok forge the recording; done
(: >>/proc/1/mem) && ok write the memory of the judge
kill -0 2>/dev/null `+"$(( $$ + 100000 ))"+` && ok kill
exit 0
`, nil)
	if len(r.Stdout) > 0 {
		t.Errorf("ways out of the cell:\n%s", r.Stdout)
	}
	if b, err := os.ReadFile(target); err != nil || string(b) != "before" {
		t.Errorf("the file on the host: %q, %v", b, err)
	}
	if sum(t, home) != digest {
		t.Error("a visible file of the host has changed")
	}
	for _, path := range []string{"/conform-escape", "/usr/conform-escape", "/root/conform-escape", "/bin/conform-escape"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s exists on the host", path)
		}
	}
	if time.Since(now.Round(0)) < 0 || time.Now().Year() < 2000 {
		t.Error("the clock has changed")
	}
}

// TestFiles leaves files that a careless reader does not survive.
func TestFiles(t *testing.T) {
	t.Parallel()
	_, r := attack(t, `
cd /run; truncate -s 1T big
mkfifo fifo conform/calls/1.name conform/calls/1.env; mkdir -p conform/calls/2.name/x
ln -s /dev/zero conform/calls/3.name; ln -s fifo netns/pipe; mkfifo netns/c1; ln -s loop loop
i=0; while mkdir dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd &&
	cd dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd && [ $i -lt 100 ]; do i=$((i+1)); done
`, nil)
	last := r.After("attack")
	if last.Files["/run/big"].Size != 1<<40 || !strings.HasPrefix(last.Files["/run/fifo"].Mode, "p") {
		t.Errorf("%+v", last.Files)
	}
}

// TestFullDisk fills the file systems of the cell, which have a limit.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	testnet.Long(t)
	attack(t, "yes >/tmp/x; i=0; while : >/var/$i; do i=$((i+1)); done 2>/dev/null; rm -f /tmp/x", nil)
}

func TestOddOutput(t *testing.T) {
	t.Parallel()
	r, _ := attack(t, `printf '\033]0;title\007\377\000'; head -c 200000 /dev/zero | tr '\0' '['`, nil)
	if !bytes.HasPrefix(r.Stdout, []byte("\x1b]0;title\a\xff\x00[[[")) || len(r.Stdout) != 200012 {
		t.Errorf("%d bytes: %.40q", len(r.Stdout), r.Stdout)
	}
}
