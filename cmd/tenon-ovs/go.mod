module github.com/tenon-cni/tenon/cmd/tenon-ovs

go 1.26.0

require (
	github.com/ovn-kubernetes/libovsdb v0.8.1
	github.com/tenon-cni/tenon v0.0.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/godbus/dbus/v5 v5.2.4 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/cobra v1.10.1 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	golang.org/x/net v0.55.0 // indirect
)

replace github.com/tenon-cni/tenon => ../..
