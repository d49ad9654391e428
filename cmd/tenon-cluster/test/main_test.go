package test

import (
	"testing"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/embedded"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/victim"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestMain(m *testing.M) {
	embedded.Main()
	victim.Main()
	testnet.Main(m)
}
