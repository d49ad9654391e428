package utils

import (
	"github.com/containernetworking/cni/pkg/types"
)

func ValidateContainerID(containerID string) *types.Error { panic("not implemented") }

func ValidateInterfaceName(ifName string) *types.Error { panic("not implemented") }

func ValidateNetworkName(networkName string) *types.Error { panic("not implemented") }
