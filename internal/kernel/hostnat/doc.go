// Package hostnat reads the rules in the nat tables of iptables, of the nftables variant and of
// the legacy one, and finds those that decide about traffic before a rule of ours would.
//
// Reading changes nothing, loads no module of the kernel and creates no table. The package knows
// packets and rules; whose traffic it is, and what follows from a rule, is for its callers.
package hostnat
