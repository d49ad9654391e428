// Package ovs tests the installed plugin ovs with traffic between several hosts, each with its own
// Open vSwitch.
package ovs
