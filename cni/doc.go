// Package cni represents the Container Network Interface protocol as data: versions, network
// configurations, the parameters of a call, results and errors, with an exact codec for every
// published version of the specification (0.1.0 to 1.1.0).
//
// The package does no I/O, starts no processes and imports only the standard library. Package
// invoke calls plugins, package network runs whole networks, and package plugin helps to write
// plugins.
//
// Addresses are [net/netip] values throughout, so a decoded value is either valid or absent. Every
// error about a document is an [*Error] with the code that the specification documents for it.
package cni
