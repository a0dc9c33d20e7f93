package upstream

import (
	"context"

	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// conn is a connection to a server: the lines of a process, or HTTP. Requests and notifications of the server come
// through the handlers that it was made with (session.handlers).
type conn interface {
	// Serve runs the connection until it is over.
	Serve(ctx context.Context) error
	// Call asks and waits; the errors are those of jsonrpc.Conn.Call.
	Call(ctx context.Context, method string, params func(id int64) any, progress func(done, total float64)) (strictjson.Value, error)
	// Notify sends a notification, or drops it when the server does not read.
	Notify(method string, params any) bool
	// Speak says which revision of MCP is spoken from now on.
	Speak(revision string)
	// TwoWay reports whether the server can ask during a call.
	TwoWay() bool
	// Reads returns how many messages have been read: it does not grow while a server is silent.
	Reads() int64
	// Done is closed when the connection has ended.
	Done() <-chan struct{}
	Close()
}

// line is a connection over the lines of a process.
type line struct{ *jsonrpc.Conn }

// Speak does nothing: a line carries messages and nothing around them.
func (line) Speak(string) {}

// TwoWay is true of every line.
func (line) TwoWay() bool { return true }
