package config_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/tenon-cni/tenon/network/config"
)

// A runtime follows its configuration directory; a broken file does not remove a working network.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "net.d")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	write := func(content string) {
		err := os.WriteFile(filepath.Join(dir, "10-pods.conflist"), []byte(content), 0o600)
		if err != nil {
			panic(err)
		}
	}
	write(`{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"bridge"}]}`)

	directory, err := config.Open(config.Options{
		Dir:    dir,
		Notify: func(*config.Snapshot) {}, // a runtime runs STATUS again here
		Log:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	defer directory.Close()

	write(`{"cniVersion":"1.1.0","name":"pods","plug`)
	now := directory.Reload() // without this call, the change is noticed a moment later
	pods, err := now.Network("pods")
	fmt.Println(pods.Types(), err)
	for _, p := range now.Problems {
		fmt.Println(filepath.Base(p.Path), p.Network, "kept:", p.Kept)
	}

	write(`{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"bridge"},{"type":"portmap"}]}`)
	now = directory.Reload()
	fmt.Println(now.Networks[0].Types(), now.Err())

	// For an operation, take the policy from the same snapshot: network.Client{Policy: now.Policy}.

	// Output:
	// [bridge] <nil>
	// 10-pods.conflist pods kept: true
	// [bridge portmap] <nil>
}
