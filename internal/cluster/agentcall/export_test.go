package agentcall

// Receive reads a message.
var Receive = receive
