package daemon

// Exported for tests with servers of their own.
const (
	ClientPort = clientPort
	ServerPort = serverPort
)

var ParseUDP = parseUDP
