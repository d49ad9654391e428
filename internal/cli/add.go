package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

func (a *app) add() *cobra.Command {
	t := &attachment{settings: settings{app: a}}
	replace := false
	cmd := &cobra.Command{
		Use:   "add NETWORK NETNS",
		Short: "Attach a container to a network",
		Long: `Runs ADD of the plugins of a network, records the attachment and prints the
result. If a plugin fails, everything is rolled back.

NETWORK is the name of a network in --net-dir, or the path of a file.
NETNS is the network namespace: a name in /run/netns, a process ID, or a path.
An argument that contains a slash is a path.`,
		Example: `  tenon add pods web
  tenon add pods web --publish 8080:80 --publish 127.0.0.1:5353:53/udp
  tenon add ./pods.conflist 4711 --id web-1 --ifname net1
  tenon add pods web --cap 'ips=["10.88.0.9"]' --arg IgnoreUnknown=1 --json`,
		Args: arguments(2, "NETWORK", "NETNS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.parse(args[1:]); err != nil {
				return err
			}
			if t.netns == "" {
				return usagef("NETNS must name a namespace")
			}
			parameters, err := t.parameters()
			if err != nil {
				return err
			}
			n, err := t.load(args[0])
			if err != nil {
				return hint(err, t.swapped(args[0])...)
			}
			if len(t.ports) > 0 {
				if err := requirePublishing(n); err != nil {
					return err
				}
			}
			warnUnread(n, parameters.Capabilities)
			client := t.client()
			if err := t.identify(client, n, args[0]); err != nil {
				return err
			}
			if err := t.requireNetns(); err != nil {
				return attachmentError{fmt.Errorf("%v: %w", t.key(n, ""), err)}
			}
			r := network.Request{
				Container:  t.id,
				IfName:     t.ifName,
				Parameters: parameters,
				Replace:    replace,
			}
			result, err := client.Add(cmd.Context(), n, r)
			switch {
			case errors.Is(err, network.ErrExists):
				err = hint(err, t.again("detach it first, then attach it again: ", "--replace"))
			case errors.Is(err, network.ErrInterfaceInUse):
				err = hint(
					err,
					t.again("choose another interface name: ", "--ifname", nextName(t.ifName)),
				)
			case cni.CodeOf(err) == session.CodeInUse:
				err = hint(err, t.portHolders(cmd.Context(), parameters.Capabilities)...)
			}
			if err != nil {
				return t.failed(err, n)
			}
			// SIGPIPE must not end the program: the attachment would stay although its result is
			// lost.
			broken := make(chan os.Signal, 1)
			signal.Notify(broken, unix.SIGPIPE)
			defer signal.Stop(broken)
			if err := t.print(client, n, result); err != nil {
				return attachmentError{t.rollBack(cmd.Context(), client, n, err)}
			}
			return nil
		},
	}
	t.flags(cmd)
	t.parameterFlags(cmd)
	t.outputFlags(cmd)
	cmd.Flags().StringArrayVarP(&t.ports, "publish", "p", nil,
		"publish `PORTS`: [IP:]HOST:CONTAINER[/PROTOCOL], for example 8080:80; repeatable")
	cmd.Flags().BoolVar(&replace, "replace", false,
		"detach the container first if it is already attached")
	return cmd
}

// nextName returns an interface name with the next number: eth1 for eth0, and net1 for net.
func nextName(name string) string {
	stem := strings.TrimRight(name, "0123456789")
	number := 0
	if digits := name[len(stem):]; digits != "" {
		number, _ = strconv.Atoi(digits) // at most 15 digits
	}
	return stem + strconv.Itoa(number+1)
}

// portHolders returns hints with the commands that detach the holders of host ports.
func (t *attachment) portHolders(
	ctx context.Context,
	capabilities map[string]json.RawMessage,
) (hints []string) {
	var ports []struct {
		HostPort int    `json:"hostPort"`
		Protocol string `json:"protocol"`
	}
	_ = json.Unmarshal(capabilities["portMappings"], &ports) // the plugin has refused anything else
	for _, p := range ports {
		holders, _ := inspect.PortHolders(
			ctx,
			p.Protocol,
			p.HostPort,
		) // the error of ADD names the port in any case
		for _, h := range holders {
			if h.Container != t.id {
				hints = append(
					hints,
					t.command(fmt.Sprintf("detach the holder of port %d: ", p.HostPort),
						"del", h.Network, gone, "--id", h.Container, "--ifname", h.IfName),
				)
			}
		}
	}
	return hints
}

// print prints the result of ADD.
func (t *attachment) print(client *network.Client, n *config.Network, result *cni.Result) error {
	if !t.output.Structured() {
		fmt.Fprintf(t.stdout, "attached %s to network %s\n", t.id, n.Name)
		if err := text.Result(t.stdout, result); err != nil {
			return err
		}
		return t.stdout.err
	}
	record, err := client.Record(t.key(n, ""))
	if err != nil {
		return err
	}
	encoded, err := inVersion(result, record.List.Version)
	if err != nil {
		return err
	}
	return t.printValue(json.RawMessage(encoded))
}

// rollBack detaches because the result of ADD could not be printed for the given cause.
func (t *attachment) rollBack(
	ctx context.Context, client *network.Client, n *config.Network, cause error,
) error {
	key := t.key(n, "")
	err := client.Del(context.WithoutCancel(ctx), key, network.Fallback{})
	if err != nil {
		return fmt.Errorf("%v: cannot print the result: %w; cannot detach: %w", key, cause, err)
	}
	return cni.Errorf(
		cni.CodeIOFailure,
		"%v: detached, because the result cannot be printed: %w",
		key,
		cause,
	)
}

// inVersion encodes the result of an attachment. CNI 0.1.0 and 0.2.0 cannot express interfaces
// without addresses: the result is then empty.
func inVersion(r *cni.Result, v cni.Version) ([]byte, error) {
	if v < cni.V030 && len(r.IPs) == 0 {
		r = &cni.Result{DNS: r.DNS}
	}
	encoded, _, err := r.Relay(v, r)
	return encoded, err
}
