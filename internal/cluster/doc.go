// Package cluster defines the data that the nodes of a cluster share: pools, nodes, blocks and
// shared addresses, their keys in etcd, and the arithmetic of blocks. It does no I/O and holds no
// state: package local keeps the part of one node on disk, and the program tenon-cluster makes the
// transactions.
//
// A pool is a range of addresses, divided into blocks of one size. A node claims whole blocks and
// allocates from them without asking the store. Shared blocks hold the addresses that must not
// belong to one node: sticky and requested ones; each of these has a key of its own.
package cluster
