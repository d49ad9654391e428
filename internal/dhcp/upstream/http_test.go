package upstream_test

import (
	"net"
	"net/http"
	netrpc "net/rpc"
)

// serveHTTP serves net/rpc until the listener is closed.
func serveHTTP(l net.Listener, srv *netrpc.Server) (closed chan struct{}) {
	closed = make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle(netrpc.DefaultRPCPath, srv)
	go func() {
		defer close(closed)
		_ = http.Serve(l, mux)
	}()
	return closed
}
