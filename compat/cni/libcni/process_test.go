//go:build unix

package libcni_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// bin returns a directory with shell scripts as plugins. The scripts find a file "log" next to them.
func bin(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		path := write(t, dir, name, "#!/bin/sh\ncd "+dir+"\n"+script+"\n")
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// logScript logs a call and prints a result.
const logScript = `echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_NETNS $CNI_ARGS $(cat)" >>log
echo '{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}'`

// A CNIConfig runs real plugins through ADD, CHECK and DEL.
func TestProcesses(t *testing.T) {
	t.Parallel()
	dir := bin(t, map[string]string{"first": logScript})
	c := libcni.NewCNIConfigWithCacheDir([]string{"/absent", dir}, t.TempDir(), nil)
	n, rt := list(t, "1.0.0", "first"), runtimeConf()
	rt.Args = [][2]string{{"A", "1"}}
	if _, err := c.AddNetworkList(t.Context(), n, rt); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.CheckNetworkList(t.Context(), n, rt),
		c.DelNetworkList(t.Context(), n, rt)); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	want := ""
	for _, verb := range []string{"ADD", "CHECK", "DEL"} {
		previous := `"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]},`
		if verb == "ADD" {
			previous = ""
		}
		want += verb + ` c1 eth0 /run/netns/x A=1 {"cniVersion":"1.0.0","name":"red",` + previous +
			`"type":"first"}` + "\n"
	}
	if string(log) != want {
		t.Errorf("log\ngot  %s\nwant %s", log, want)
	}
}

// The error object of a plugin is reachable, with rollback by the same processes.
func TestProcessFails(t *testing.T) {
	t.Parallel()
	const fail = `[ $CNI_COMMAND = DEL ] && exit
echo '{"code":11,"msg":"busy","details":"try later"}'; exit 1`
	dir := bin(t, map[string]string{"first": logScript, "second": `echo "$CNI_COMMAND 2" >>log
` + fail})
	c := libcni.NewCNIConfigWithCacheDir([]string{dir}, t.TempDir(), nil)
	_, err := c.AddNetworkList(t.Context(), list(t, "1.0.0", "first", "second"), runtimeConf())
	wantError(t, err, `plugin type="second" failed (add): busy; try later`)
	object := (*types.Error)(nil)
	if !errors.As(err, &object) || object.Code != 11 {
		t.Errorf("%#v", err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	verbs := []string{}
	for line := range strings.Lines(string(b)) {
		verbs = append(verbs, strings.Fields(line)[0])
	}
	if got := fmt.Sprint(verbs); err != nil || got != "[ADD ADD DEL DEL]" {
		t.Errorf("verbs %s, %v", got, err)
	}
}

// Every entry point ends with its context and reports the plugin that was killed.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	dir := bin(t, map[string]string{"first": "exec sleep 60"})
	n := list(t, "1.1.0", "first")
	net := plugin(t, `{"cniVersion":"1.1.0","name":"red","type":"first"}`)
	rt := runtimeConf()
	for name, run := range map[string]func(context.Context, *libcni.CNIConfig) error{
		"CheckNetworkList": func(ctx context.Context, c *libcni.CNIConfig) error {
			return c.CheckNetworkList(ctx, n, rt)
		},
		"DelNetworkList": func(ctx context.Context, c *libcni.CNIConfig) error {
			return c.DelNetworkList(ctx, n, rt)
		},
		"CheckNetwork": func(ctx context.Context, c *libcni.CNIConfig) error {
			return c.CheckNetwork(ctx, net, rt)
		},
		"DelNetwork": func(ctx context.Context, c *libcni.CNIConfig) error {
			return c.DelNetwork(ctx, net, rt)
		},
		"ValidateNetworkList": func(ctx context.Context, c *libcni.CNIConfig) error {
			_, err := c.ValidateNetworkList(ctx, n)
			return err
		},
		"ValidateNetwork": func(ctx context.Context, c *libcni.CNIConfig) error {
			_, err := c.ValidateNetwork(ctx, net)
			return err
		},
		"GetVersionInfo": func(ctx context.Context, c *libcni.CNIConfig) error {
			_, err := c.GetVersionInfo(ctx, "first")
			return err
		},
		"GetStatusNetworkList": func(ctx context.Context, c *libcni.CNIConfig) error {
			return c.GetStatusNetworkList(ctx, n)
		},
		"GCNetworkList": func(ctx context.Context, c *libcni.CNIConfig) error {
			return c.GCNetworkList(ctx, n, &libcni.GCArgs{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantKilled(t, dir, run)
		})
	}
}

// wantKilled runs an operation that outlasts its context.
func wantKilled(t *testing.T, dir string, run func(context.Context, *libcni.CNIConfig) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := run(ctx, libcni.NewCNIConfigWithCacheDir([]string{dir}, t.TempDir(), nil))
	if err == nil || !strings.Contains(err.Error(), "netplugin failed with no error message: ") {
		t.Errorf("got %v", err)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("ended after %v", d)
	}
}

// ADD ends with its context too, and then runs DEL.
func TestAddTimeout(t *testing.T) {
	t.Parallel()
	dir := bin(t, map[string]string{"first": `echo $CNI_COMMAND >>log
[ $CNI_COMMAND = DEL ] || exec sleep 60`})
	net := plugin(t, `{"cniVersion":"1.1.0","name":"red","type":"first"}`)
	wantKilled(t, dir, func(ctx context.Context, c *libcni.CNIConfig) error {
		_, err := c.AddNetwork(ctx, net, runtimeConf())
		return err
	})
	wantKilled(t, dir, func(ctx context.Context, c *libcni.CNIConfig) error {
		_, err := c.AddNetworkList(ctx, list(t, "1.1.0", "first"), runtimeConf())
		return err
	})
	if b, err := os.ReadFile(filepath.Join(dir, "log")); string(b) != "ADD\nDEL\nADD\nDEL\n" {
		t.Errorf("log %q, %v", b, err)
	}
}

// Goroutines share a CNIConfig that was made without a constructor (run with -race).
func TestZeroCNIConfig(t *testing.T) {
	dir := bin(t, map[string]string{"first": `cat >/dev/null
echo '{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}'`})
	saved := libcni.CacheDir
	t.Cleanup(func() { libcni.CacheDir = saved })
	libcni.CacheDir = t.TempDir()
	c := libcni.CNIConfig{Path: []string{dir}}
	n := list(t, "1.0.0", "first")
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			rt := runtimeConf()
			rt.ContainerID = fmt.Sprint("c", i)
			if _, err := c.AddNetworkList(t.Context(), n, rt); err != nil {
				t.Error(err)
			}
			if err := c.DelNetworkList(t.Context(), n, rt); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if attachments, err := c.GetCachedAttachments(""); len(attachments) != 0 || err != nil {
		t.Errorf("left %v, %v", attachments, err)
	}
}

// A plugin of 0.1.0 knows neither VERSION nor cniVersion.
func TestAncientPlugin(t *testing.T) {
	t.Parallel()
	dir := bin(t, map[string]string{"first": `cat >>log
case $CNI_COMMAND in
ADD) echo '{"ip4":{"ip":"10.1.2.3/24","gateway":"10.1.2.1","routes":[{"dst":"0.0.0.0/0"}]}}' ;;
DEL) ;;
*) echo '{"code":100,"msg":"unknown CNI_COMMAND: VERSION"}'; exit 1 ;;
esac`})
	c := libcni.NewCNIConfigWithCacheDir([]string{dir}, t.TempDir(), nil)
	net := plugin(t, `{"name":"red","type":"first"}`)
	if _, err := c.ValidateNetwork(t.Context(), net); err != nil {
		t.Error(err)
	}
	result, err := c.AddNetwork(t.Context(), net, runtimeConf())
	if err != nil {
		t.Fatal(err)
	}
	if result.Version() != "0.1.0" {
		t.Errorf("version %s", result.Version())
	}
	newer, err := result.GetAsVersion("1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if text := resultText(t, newer); !strings.Contains(text, `"address":"10.1.2.3/24"`) {
		t.Errorf("result %s", text)
	}
	if err := c.DelNetwork(t.Context(), net, runtimeConf()); err != nil {
		t.Error(err)
	}
}
