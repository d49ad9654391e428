package script

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/test/screen"
)

// inside runs one script in the namespaces of this process. Shared directories are empty there, so
// that names of namespaces, plugins, records and reservations stay within the script.
func inside(script string) int {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "namespaces of the script:", err)
		return 1
	}
	if strings.HasSuffix(script, ".md") {
		if err := runPage(script); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	t := &console{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		testscript.RunT(t, testscript.Params{
			Files:               []string{script},
			Setup:               environment,
			UpdateScripts:       os.Args[1] == "-update=true",
			RequireExplicitExec: true,
			Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"await":   await,
				"listen":  listen,
				"picture": picture,
			},
		})
	}()
	<-done
	if t.failed {
		return 1
	}
	return 0
}

func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, dir := range []string{"/run", "/opt", "/var/lib"} {
		if err := unix.Mount("tenon-script", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	if os.Getpid() == 1 { // see processes
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			return fmt.Errorf("/proc: %w", err)
		}
	}
	return exec.Command("ip", "link", "set", "lo", "up").Run()
}

// environment sets the environment of a script: PATH begins with the directory of the binary under
// test, networks are configured in $WORK/net.d, plugins are in /opt/cni/bin, documents in $DOCS, and
// the install script is $INSTALL.
func environment(e *testscript.Env) error {
	for _, dir := range []string{e.WorkDir, filepath.Dir(e.WorkDir)} {
		if err := os.Chmod(dir, 0o755); err != nil { // some scripts run commands as another user
			return err
		}
	}
	docs, err := filepath.Abs("../../docs")
	if err != nil {
		return err
	}
	e.Setenv("DOCS", docs)
	e.Setenv("EXAMPLE", os.Getenv(exampleEnv))
	e.Setenv("LINKED", os.Getenv(linkedEnv))
	e.Setenv("PATH", os.Getenv(binEnv)+":"+e.Getenv("PATH")+":/usr/sbin:/sbin")
	e.Setenv("NETCONFPATH", filepath.Join(e.WorkDir, "net.d"))
	e.Setenv("TENON", filepath.Join(os.Getenv(binEnv), "tenon"))
	e.Setenv("INSTALL", filepath.Join(docs, "../packaging/install.sh"))
	return nil
}

// await waits until a file matches each of the patterns.
func await(ts *testscript.TestScript, neg bool, patterns []string) {
	if neg || len(patterns) == 0 {
		ts.Fatalf("usage: await pattern...")
	}
	end := time.Now().Add(testnet.Patience)
	for _, p := range patterns {
		for {
			found, err := filepath.Glob(ts.MkAbs(p))
			ts.Check(err)
			if len(found) > 0 {
				break
			}
			if time.Now().After(end) {
				ts.Fatalf("nothing matches %s", p)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// listen listens on a TCP port in a namespace of /run/netns until the script ends.
func listen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: listen namespace port")
	}
	ns, err := netns.Open(filepath.Join("/run/netns", args[0]))
	ts.Check(err)
	defer ns.Close()
	ts.Check(ns.Run(func() error {
		l, err := net.Listen("tcp4", ":"+args[1])
		if err == nil {
			ts.Defer(func() { l.Close() })
		}
		return err
	}))
}

// picture compares a picture in the documents with the output of the last command. With -update, it
// draws the picture again if the output differs.
func picture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: picture file command")
	}
	file := filepath.Join(ts.Getenv("DOCS"), args[0])
	now := screen.Draw(args[1], ts.ReadFile("stdout"))
	old, err := os.ReadFile(file)
	found := ""
	if err == nil {
		found, err = screen.Difference(string(old), now)
	}
	switch {
	case err == nil && found == "":
	case os.Args[1] == "-update=true":
		ts.Check(os.WriteFile(file, []byte(now), 0o644))
	case err != nil:
		ts.Fatalf("%v; draw the picture: make pictures", err)
	default:
		ts.Fatalf("%q prints %s of %s; draw it again: make pictures", args[1], found, args[0])
	}
}

// console is a [testscript.T] that prints. The exit status of the process reports the outcome.
type console struct{ failed bool }

func (c *console) Skip(args ...any)  { c.Fatal(append([]any{"scripts do not skip:"}, args...)...) }
func (c *console) Parallel()         {}
func (c *console) Log(args ...any)   { fmt.Println(args...) }
func (c *console) Verbose() bool     { return false }
func (c *console) Fatal(args ...any) { c.Log(args...); c.FailNow() }

func (c *console) FailNow() {
	c.failed = true
	runtime.Goexit()
}

func (c *console) Run(_ string, f func(testscript.T)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(c)
	}()
	<-done
}
