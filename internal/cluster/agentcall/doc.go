// Package agentcall is the protocol between the plugin cluster, or a command, and the agent on the
// same node: one request and one reply per connection to a Unix socket, each a JSON document on a
// line. Only root may connect.
package agentcall
