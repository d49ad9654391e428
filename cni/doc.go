// Package cni holds the Container Network Interface protocol as data: versions, network configurations, the parameters
// of a call, results and errors, with an exact codec for every published version of the specification (0.1.0 to 1.1.0).
//
// It does no I/O, starts nothing and imports only the standard library. Calling plugins is the business of package
// invoke, driving whole networks that of package network, and writing plugins that of package plugin.
//
// Addresses are [net/netip] values throughout, so a decoded value is either valid or absent. Everything that can be
// wrong with a document is an [*Error] with the code that the specification documents for it.
package cni
