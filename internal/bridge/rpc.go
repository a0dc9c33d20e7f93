package bridge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"waldo/internal/wire"
)

// Codes of JSON-RPC 2.0 §5.1, and one of the range it leaves to servers.
const (
	codeParse    = -32700
	codeInvalid  = -32600
	codeMethod   = -32601
	codeParams   = -32602
	codeInternal = -32603
	codeBusy     = -32000
)

// maxID is how many bytes of JSON a request id may have.
const maxID = 64

var errFrame = errors.New("bridge: frame too long")

// readFrame reads one line without its newline: at most MaxFrame bytes, else errFrame. What comes
// after the last newline is no frame.
func readFrame(r *bufio.Reader) ([]byte, error) {
	var frame []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(frame)+len(part) > MaxFrame+1 {
			return nil, errFrame
		}
		frame = append(frame, part...)
		switch err {
		case nil:
			return frame[:len(frame)-1], nil
		case bufio.ErrBufferFull:
		default:
			return nil, io.EOF
		}
	}
}

// request is one JSON-RPC message from the box.
type request struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id"`
	Method  string         `json:"method"`
	Params  jsontext.Value `json:"params"`
}

type rpcError struct {
	code int
	text string
}

// parseRequest reads one frame strictly: a JSON object without duplicate names, version 2.0, a
// method, and an id that is a string or a number of at most 64 bytes, or none.
func parseRequest(line []byte) (request, *rpcError) {
	v, err := wire.Parse(line)
	if err != nil {
		return request{}, &rpcError{codeParse, "not one JSON object without duplicate names"}
	}
	var req request
	if v.Kind() != '{' || v.Decode(&req) != nil {
		return request{}, &rpcError{codeInvalid, "not a JSON-RPC request"}
	}
	if req.Version != "2.0" || req.Method == "" || len(req.ID) > maxID {
		return request{}, &rpcError{codeInvalid, "not a JSON-RPC 2.0 request"}
	}
	if k := req.ID.Kind(); len(req.ID) > 0 && k != '"' && k != '0' {
		return request{}, &rpcError{codeInvalid, "an id is a string or a number"}
	}
	return req, nil
}

func (r request) notification() bool { return len(r.ID) == 0 }

// cancelled returns the id that a notifications/cancelled names.
func (r request) cancelled() (string, bool) {
	var p struct {
		RequestID jsontext.Value `json:"requestId"`
	}
	ok := r.params(&p)
	return string(p.RequestID), ok && len(p.RequestID) > 0
}

// params decodes the parameters into out. It reports false where they do not fit.
func (r request) params(out any) bool {
	if len(r.Params) == 0 {
		return true
	}
	v, err := wire.Parse(r.Params)
	return err == nil && v.Kind() == '{' && v.Decode(out) == nil
}

// response is one JSON-RPC answer.
type response struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *errorBody      `json:"error,omitempty"`
}

type errorBody struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func refusal(id []byte, code int, text string) response {
	if len(id) == 0 {
		id = []byte("null")
	}
	return response{Version: "2.0", ID: id, Error: &errorBody{Code: code, Message: text}}
}

func (w *wicket) fail(id []byte, code int, text string) { w.write(refusal(id, code, text)) }

// write sends one frame, or an error in its place if it is too long.
func (w *wicket) write(r response) {
	w.out.Lock()
	defer w.out.Unlock()
	w.send(r)
}

// reply sends the answer to a request and frees its place. A request keeps its place until its
// answer is next to be written, so a box that does not read is owed at most MaxInFlight answers.
func (w *wicket) reply(key string, r response) {
	w.out.Lock()
	defer w.out.Unlock()
	w.mu.Lock()
	w.held -= w.places[key].bytes
	delete(w.places, key)
	w.mu.Unlock()
	w.send(r)
}

func (w *wicket) send(r response) {
	b, err := encode(r)
	if err != nil {
		b, _ = encode(refusal(r.ID, codeInternal, "the answer cannot be sent"))
	} else if len(b) > MaxFrame {
		b, _ = encode(refusal(r.ID, codeInternal, "the answer is longer than a frame may be: ask for less"))
	}
	if _, err := w.conn.Write(append(b, '\n')); err != nil {
		_ = w.conn.Close()
	}
}

// encode writes r on one line. Newlines cannot stand inside: JSON escapes them in strings, and raw
// values lose the space between their parts.
func encode(r response) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}
