// Package hostnat reads the rules in the nat tables of iptables, of the nftables variant and of
// the legacy one, and finds rules that decide about traffic before a rule of ours would.
//
// Reading changes nothing, loads no module of the kernel and creates no table. The package knows
// packets and rules. Its callers know which attachment the traffic belongs to and choose the backend.
package hostnat
