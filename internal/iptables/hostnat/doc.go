// Package hostnat reads the rules in the nat tables of iptables, of the nftables variant and of the
// legacy variant, and finds rules that decide about traffic before a rule of Tenon would.
//
// Reading changes nothing, loads no kernel module and creates no table. The package knows packets
// and rules; its callers know which attachment the traffic belongs to and choose the backend.
package hostnat
