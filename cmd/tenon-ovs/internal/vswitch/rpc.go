package vswitch

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// rpc is a JSON-RPC connection to the server (RFC 7047, section 4). It makes one call at a time and
// starts no goroutine, unlike the client of libovsdb, which also races with itself if the
// connection breaks early.
type rpc struct {
	net  net.Conn
	in   *json.Decoder
	out  *json.Encoder
	next int // identifier of the next request
}

// dialRPC connects to an endpoint: unix:PATH, tcp:ADDRESS:PORT or ssl:ADDRESS:PORT.
func dialRPC(ctx context.Context, endpoint string) (*rpc, error) {
	scheme, address, _ := strings.Cut(endpoint, ":")
	var c net.Conn
	var err error
	switch scheme {
	case "unix", "tcp":
		c, err = new(net.Dialer).DialContext(ctx, scheme, address)
	case "ssl":
		c, err = new(tls.Dialer).DialContext(ctx, "tcp", address)
	default:
		err = fmt.Errorf("endpoint %q has no known scheme", endpoint)
	}
	if err != nil {
		return nil, err
	}
	return &rpc{net: c, in: json.NewDecoder(c), out: json.NewEncoder(c)}, nil
}

func (r *rpc) close() { _ = r.net.Close() }

// request is a request of either side.
type request struct {
	Method string `json:"method"`
	Params any    `json:"params"`
	ID     any    `json:"id"`
}

// response is an answer of either side.
type response struct {
	Result any `json:"result"`
	Error  any `json:"error"`
	ID     any `json:"id"`
}

// received is a request or an answer of the server.
type received struct {
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
	ID     json.RawMessage
}

// serverError is an error that the server returns instead of a result.
type serverError struct{ text string }

func (e *serverError) Error() string { return "database: " + e.text }

// call makes a request and waits for the answer. After an error other than a serverError, the
// connection cannot be used any more.
func (r *rpc) call(ctx context.Context, method string, params []any, reply any) error {
	stop := context.AfterFunc(ctx, func() { _ = r.net.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	id := r.next
	r.next++
	if err := r.out.Encode(request{method, params, id}); err != nil {
		return err
	}
	for {
		var m received
		if err := r.in.Decode(&m); err == io.EOF {
			return io.ErrUnexpectedEOF
		} else if err != nil {
			return err
		}
		switch {
		case m.Method == "echo": // the server checks whether this side is alive (section 4.1.11)
			if err := r.out.Encode(response{m.Params, nil, m.ID}); err != nil {
				return err
			}
		case m.Method != "": // a notification
		case string(m.ID) != fmt.Sprint(id):
			return fmt.Errorf("answer to request %s, want %d", m.ID, id)
		case len(m.Error) > 0 && string(m.Error) != "null":
			return &serverError{string(m.Error)}
		default:
			return json.Unmarshal(m.Result, reply)
		}
	}
}
