module github.com/tenon-cni/tenon/test/programs/speed

go 1.26.0

require (
	github.com/containerd/go-cni v1.1.14
	github.com/tenon-cni/tenon v0.0.0
)

require (
	github.com/containernetworking/cni v1.3.1 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/godbus/dbus/v5 v5.2.4 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/petermattis/goid v0.0.0-20240813172612-4fcff4a6cae7 // indirect
	github.com/sasha-s/go-deadlock v0.3.5 // indirect
	github.com/spf13/cobra v1.10.1 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	go.opentelemetry.io/otel v1.29.0 // indirect
	go.opentelemetry.io/otel/metric v1.29.0 // indirect
	go.opentelemetry.io/otel/trace v1.29.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

// The libcni of this file is upstream's; scripts/bench-programs adds the line that replaces it.
replace github.com/tenon-cni/tenon => ../../..
