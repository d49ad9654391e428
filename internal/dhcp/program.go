package dhcp

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/internal/program"
)

// Program is the file name of the daemon's binary.
const Program = "tenon-dhcp"

// UpstreamCommand is the command of the program with which [Call] reaches the upstream plugin's
// daemon.
const UpstreamCommand = "call-upstream"

// callProgram runs the program to send a JSON request to the upstream plugin's daemon at a socket,
// and returns the reply as JSON.
func callProgram(ctx context.Context, socket string, request []byte) ([]byte, error) {
	reply, err := program.Output(ctx, request, Program, UpstreamCommand, socket)
	if errors.As(err, new(*program.MissingError)) {
		err = fmt.Errorf("cannot call upstream's DHCP daemon: %w", err)
	}
	return reply, err
}
