package create

import (
	"github.com/containernetworking/cni/pkg/types"
)

func Create(version string, bytes []byte) (types.Result, error) { panic("not implemented") }

func CreateFromBytes(bytes []byte) (types.Result, error) { panic("not implemented") }

func DecodeVersion(jsonBytes []byte) (string, error) { panic("not implemented") }
