//go:build race

package daemon_test

func init() { raced = true }
