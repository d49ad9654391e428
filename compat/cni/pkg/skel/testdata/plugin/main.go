// The plugin is built on skel, to be called as a process. The key "fail" of its configuration
// selects how ADD fails.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

type config struct {
	types.PluginConf
	Fail string `json:"fail"`
}

func add(args *skel.CmdArgs) error {
	var conf config
	if err := json.Unmarshal(args.StdinData, &conf); err != nil {
		return err
	}
	switch conf.Fail {
	case "typed":
		return types.NewError(types.ErrTryAgainLater, "busy", "lock of "+args.ContainerID)
	case "plain":
		return errors.New("no line")
	case "panic":
		panic("bug")
	}
	result := &types100.Result{IPs: []*types100.IPConfig{
		{Address: net.IPNet{IP: net.IP{10, 0, 0, 5}, Mask: net.CIDRMask(24, 32)}},
	}}
	return types.PrintResult(result, conf.CNIVersion)
}

func del(args *skel.CmdArgs) error {
	_, err := fmt.Fprintf(os.Stderr, "removed %s of %s\n", args.IfName, args.ContainerID)
	return err
}

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del},
		version.VersionsStartingFrom("0.3.1"), "CNI plugin of a test")
}
