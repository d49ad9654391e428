package ovs_test

import (
	"testing"

	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/ovs"
)

func TestMain(m *testing.M) { plugintest.Main(m, ovs.Plugin) }

// FuzzServe needs no switch: the module cmd/tenon-ovs tests the plugin with one.
func FuzzServe(f *testing.F) { plugintest.Fuzz(f, plugintest.Suite{Plugin: ovs.Plugin}) }
