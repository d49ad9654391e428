// Package driver is the driver of Tenon's own runtime, package network, for "tenon conform runtime".
// It holds the protocol of drivers; the judge is in internal/judge/runtimes.
package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// Lacking is the exit status for a verb that the driver does not have.
const Lacking = 3

// Input is the standard input of a driver.
type Input struct {
	Network    string   `json:"network"`
	ConfDir    string   `json:"confDir"`    // directory of the network configurations
	PluginDirs []string `json:"pluginDirs"` // searched in this order
	CacheDir   string   `json:"cacheDir"`   // for the state of the runtime
	TimeoutMs  int      `json:"timeoutMs"`  // deadline of the verb

	ContainerID    string                     `json:"containerID"`
	Netns          string                     `json:"netns"`
	IfName         string                     `json:"ifname"`
	Args           [][2]string                `json:"args"`
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs"`

	ValidAttachments []cni.ValidAttachment `json:"validAttachments"` // only for gc
}

// Run executes a verb (add, check, del, gc or status) with the input of a driver, and returns the exit
// status. It prints the result of add, and the error object of a failure. caller starts the plugins;
// nil is [invoke.Process].
func Run(ctx context.Context, verb string, stdin io.Reader, stdout io.Writer, caller invoke.Caller) int {
	do, ok := verbs[verb]
	if !ok {
		return Lacking
	}
	var in Input
	out, err := []byte(nil), json.NewDecoder(stdin).Decode(&in)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(in.TimeoutMs)*time.Millisecond)
		defer cancel()
		out, err = do(ctx, in.client(caller), &in)
	}
	if err != nil {
		fmt.Fprintf(stdout, "%s\n", cni.AsError(err).Encode(cni.V110))
		return 1
	}
	if len(out) > 0 {
		fmt.Fprintf(stdout, "%s\n", out)
	}
	return 0
}

func (in *Input) client(caller invoke.Caller) *network.Client {
	return &network.Client{
		Caller: caller, PluginDirs: in.PluginDirs, StateDir: in.CacheDir, CacheDir: network.NoCacheDir,
		Runtime: "driver", Log: slog.New(slog.DiscardHandler), Journal: network.NoJournal, Isolated: true,
	}
}

func (in *Input) attachment() cni.Attachment {
	return cni.Attachment{Network: in.Network, Container: in.ContainerID, IfName: in.IfName}
}

func (in *Input) parameters() network.Parameters {
	p := network.Parameters{Netns: in.Netns, Capabilities: in.CapabilityArgs}
	for _, a := range in.Args {
		p.Args = append(p.Args, cni.Arg{Key: a[0], Value: a[1]})
	}
	return p
}

var verbs = map[string]func(context.Context, *network.Client, *Input) ([]byte, error){
	"add": add, "check": check, "del": del, "gc": gc, "status": status,
}

func add(ctx context.Context, c *network.Client, in *Input) ([]byte, error) {
	n, err := config.Load(in.ConfDir, in.Network)
	if err != nil {
		return nil, err
	}
	r, err := c.Add(ctx, n, network.Request{
		Container: in.ContainerID, IfName: in.IfName, Parameters: in.parameters(),
	})
	if err != nil {
		return nil, err
	}
	record, err := c.Record(in.attachment())
	if err != nil {
		return nil, err
	}
	return r.Encode(record.List.Version)
}

func check(ctx context.Context, c *network.Client, in *Input) ([]byte, error) {
	n, err := config.Load(in.ConfDir, in.Network)
	if err != nil {
		return nil, err
	}
	return nil, c.Check(ctx, in.attachment(), n)
}

// del needs the file of the network only if the attachment has no record.
func del(ctx context.Context, c *network.Client, in *Input) ([]byte, error) {
	n, missing := config.Load(in.ConfDir, in.Network)
	err := c.Del(ctx, in.attachment(), network.Fallback{Network: n, Parameters: in.parameters()})
	if err != nil && missing != nil {
		return nil, fmt.Errorf("%w; %w", err, missing)
	}
	return nil, err
}

func gc(ctx context.Context, c *network.Client, in *Input) ([]byte, error) {
	n, err := config.Load(in.ConfDir, in.Network)
	if err != nil {
		return nil, err
	}
	return nil, c.GC(ctx, n, network.Keep{Attachments: in.ValidAttachments})
}

func status(ctx context.Context, c *network.Client, in *Input) ([]byte, error) {
	n, err := config.Load(in.ConfDir, in.Network)
	if err != nil {
		return nil, err
	}
	return nil, c.Status(ctx, n)
}
