// Package skel is the frame of a CNI plugin: it reads the environment and standard input, checks
// them, and calls the function of the requested verb. It does not print results; a callback does
// that with the Print method of its result or with types.PrintResult.
package skel

import (
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// CmdArgs are the arguments of one call. Variables that the verb does not require are present if
// the runtime sets them, and skel does not validate them.
type CmdArgs struct {
	ContainerID   string // CNI_CONTAINERID
	Netns         string // CNI_NETNS, the path of the container's network namespace
	IfName        string // CNI_IFNAME
	Args          string // CNI_ARGS; types.LoadArgs parses them
	Path          string // CNI_PATH
	NetnsOverride string // CNI_NETNS_OVERRIDE
	StdinData     []byte // the network configuration, as read from standard input
}

// CNIFuncs are the callbacks of a plugin. A nil callback succeeds without doing anything.
//
// A callback reports failure with any error. A *types.Error, also one in the chain of the error,
// gives the code; without one the code is types.ErrInternal. A nil *types.Error is success.
type CNIFuncs struct {
	Add    func(_ *CmdArgs) error
	Del    func(_ *CmdArgs) error
	Check  func(_ *CmdArgs) error
	GC     func(_ *CmdArgs) error
	Status func(_ *CmdArgs) error
}

// PluginMainFuncsWithError runs the call that the environment of this process requests. It returns
// nil if the call succeeds, also for a nil callback, for VERSION, and when CNI_COMMAND is empty and
// about is not: then it prints about and the supported versions to standard error.
//
// The error has one of these codes, or the code that the callback gives:
//
//   - types.ErrInvalidEnvironmentVariables: a required variable is missing or invalid, or the verb
//     is unknown. ADD and CHECK require CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME and CNI_PATH. DEL
//     requires these except CNI_NETNS, GC and STATUS only CNI_PATH.
//   - types.ErrIOFailure: standard input cannot be read, or the reply to VERSION not be written.
//   - types.ErrDecodingFailure: the configuration is not JSON, or a version is malformed.
//   - types.ErrInvalidNetworkConfig: the name of the network is missing or invalid.
//   - types.ErrIncompatibleCNIVersion: the plugin does not support the version of the
//     configuration, or this version does not have the verb.
//   - types.ErrInvalidNetNS: CNI_NETNS is the namespace of the plugin itself, and
//     CNI_NETNS_OVERRIDE is neither 1 nor true. ADD checks this before it calls the callback; DEL
//     calls the callback first, so that it cleans up in any case.
func PluginMainFuncsWithError(
	funcs CNIFuncs, versionInfo version.PluginInfo, about string,
) *types.Error {
	d := dispatcher{Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	return d.pluginMain(funcs, versionInfo, about)
}

// PluginMainFuncs is the main function of a plugin. It does the same as [PluginMainFuncsWithError];
// if the call fails, it prints the error object to standard output and exits with status 1.
func PluginMainFuncs(funcs CNIFuncs, versionInfo version.PluginInfo, about string) {
	failure := PluginMainFuncsWithError(funcs, versionInfo, about)
	if failure == nil {
		return
	}
	if err := failure.Print(); err != nil {
		fmt.Fprintf(os.Stderr, "write the error %q to standard output: %v\n", failure, err)
	}
	os.Exit(1)
}

// PluginMainWithError is [PluginMainFuncsWithError] for a plugin without GC and STATUS.
//
// Deprecated: use [PluginMainFuncsWithError].
func PluginMainWithError(
	cmdAdd, cmdCheck, cmdDel func(_ *CmdArgs) error, versionInfo version.PluginInfo, about string,
) *types.Error {
	funcs := CNIFuncs{Add: cmdAdd, Check: cmdCheck, Del: cmdDel}
	return PluginMainFuncsWithError(funcs, versionInfo, about)
}

// PluginMain is [PluginMainFuncs] for a plugin without GC and STATUS.
//
// Deprecated: use [PluginMainFuncs].
func PluginMain(
	cmdAdd, cmdCheck, cmdDel func(_ *CmdArgs) error, versionInfo version.PluginInfo, about string,
) {
	PluginMainFuncs(CNIFuncs{Add: cmdAdd, Check: cmdCheck, Del: cmdDel}, versionInfo, about)
}
