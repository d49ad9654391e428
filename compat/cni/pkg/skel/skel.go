package skel

import (
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

type CNIFuncs struct {
	Add    func(_ *CmdArgs) error
	Check  func(_ *CmdArgs) error
	Del    func(_ *CmdArgs) error
	GC     func(_ *CmdArgs) error
	Status func(_ *CmdArgs) error
}

type CmdArgs struct {
	Args          string
	ContainerID   string
	IfName        string
	Netns         string
	NetnsOverride string
	Path          string
	StdinData     []byte
}

func PluginMain(cmdAdd func(_ *CmdArgs) error, cmdCheck func(_ *CmdArgs) error, cmdDel func(_ *CmdArgs) error, versionInfo version.PluginInfo, about string) {
	panic("not implemented")
}

func PluginMainFuncs(funcs CNIFuncs, versionInfo version.PluginInfo, about string) {
	panic("not implemented")
}

func PluginMainFuncsWithError(funcs CNIFuncs, versionInfo version.PluginInfo, about string) *types.Error {
	panic("not implemented")
}

func PluginMainWithError(cmdAdd func(_ *CmdArgs) error, cmdCheck func(_ *CmdArgs) error, cmdDel func(_ *CmdArgs) error, versionInfo version.PluginInfo, about string) *types.Error {
	panic("not implemented")
}
