// Package agent is the part of a node that talks to the store of the cluster. It joins the node and
// keeps its lease, claims blocks before the node's are full, gives empty ones back, notices that
// the node was fenced, frees the blocks of nodes that are proven dead, and hands the routes to the
// other nodes to a [Router]. The plugin cluster allocates from the blocks without the agent; while
// the agent or the store is down, it allocates from what the node has.
//
// An address is given out only from a block that the store shows as this node's, in a store that
// descends from every state that this node has seen: see trust.go. Restores are tolerated while one
// agent that has seen the lost transactions reaches the store. An operator's word is needed for
// nodes that are off meanwhile, and to grow again.
//
// An [Agent] has parts, each with its own state: trust (may the node rely on the store), session (the
// node in the store), view (the pools and other nodes), hold (the limit without contact), files (the
// node's blocks on disk), claims (blocks), commons (shared addresses and quotas), reclaimer (blocks
// of dead nodes), routing, and membership, which joins with them. The agent itself renews the lease,
// does the work that is due then, and answers requests.
//
// All clocks, random numbers and connections are options, so that an agent runs in a bubble of
// testing/synctest. Package registry makes the transactions, package local reads and writes the
// files.
package agent
