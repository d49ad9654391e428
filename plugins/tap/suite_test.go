package tap_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/tap"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

var suite = plugintest.Suite{
	Plugin: tap.Plugin,
	Before: withBridge,
	Drifts: []plugintest.Drift{
		owned("another owner", "owner", unix.TUNSETOWNER),
		owned("another group", "group", unix.TUNSETGROUP),
		inContainer("not on the bridge", "link", "set", "eth0", "nomaster"),
		inContainer("bridge gone", "link", "delete", "br0"),
	},
}

// owned is a drift by an ioctl of a process that has the device open.
func owned(name, key string, request uint) plugintest.Drift {
	return plugintest.Drift{Name: name, Key: key,
		Break: func(t testing.TB, a plugintest.Attached) string {
			fd, err := openTap(a.Container, 0, unix.IFF_MULTI_QUEUE)
			if err == nil {
				err = errors.Join(unix.IoctlSetInt(fd, request, 108), unix.Close(fd))
			}
			if err != nil {
				t.Fatal(err)
			}
			return key + " 107, found 108"
		}}
}

// inContainer is a drift by a call of ip in the container. CHECK must name the bridge.
func inContainer(name string, args ...string) plugintest.Drift {
	return plugintest.Drift{Name: name, Key: "bridge",
		Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Container.Command("ip", args...)
			return "br0"
		}}
}

// withBridge creates a bridge in a container.
func withBridge(_ testing.TB, _ *plugintest.Net, c *plugintest.Namespace) *cni.Result {
	c.Command("ip", "link", "add", "br0", "address", "02:00:00:00:0b:0b", "type", "bridge")
	return nil
}

func TestSuite(t *testing.T) { plugintest.Run(t, suite) }

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, suite) }
