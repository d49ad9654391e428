// Package embedded runs a member of etcd's embedded server in a process of the test binary, so that
// a test can kill and pause it like any other server.
package embedded

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/lab"
)

const variable = "TENON_TEST_ETCD"

// Server is the embedded server. The TestMain of the test binary calls [Main].
func Server() lab.Server {
	self, err := os.Executable()
	if err != nil {
		panic(err) // /proc is not mounted
	}
	return lab.Server{Env: []string{variable + "=1"}, Command: []string{self}}
}

// Main returns in a process of the tests. In a process that [Server] started, it serves until the
// process gets a signal, and does not return.
func Main() {
	if os.Getenv(variable) == "" {
		return
	}
	if err := serve(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(file string) error {
	conf, err := embed.ConfigFromFile(file)
	if err != nil {
		return err
	}
	e, err := embed.StartEtcd(conf)
	if err != nil {
		return err
	}
	defer e.Close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	select {
	case <-signals:
		return nil
	case err := <-e.Err():
		return err
	}
}
