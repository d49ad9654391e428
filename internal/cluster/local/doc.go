// Package local keeps on disk what a node knows of its pools, and allocates from the node's own
// blocks. The plugin uses it without asking the agent; the agent writes the blocks into it. Neither
// holds a lock during a network call.
//
//	DIR/
//	    node.json         [Node]: identity and epoch, written by the agent
//	    contact           its modification time is the time of the last contact with the store
//	    pools/POOL.json   [State]: the blocks of a pool, written by the agent
//	    addresses/POOL/   reservations, see package filestore; its lock covers POOL.json too
//	    notes/POOL/       [Note]: shared addresses that the plugin released and the store still shows
//	    intents/          transactions of the agent with an unknown outcome
//
// A reservation names network, container, interface and the namespace of the pod, so that networks
// can share a pool and the use of a quota can be counted. Reservations end with the boot; blocks
// outlive it.
package local
