// Package jsonrpc implements JSON-RPC 2.0 as MCP uses it: one message on a line, parsed strictly and once, raw JSON
// kept. Both sides send requests. The package knows frames and ids, not the meaning of methods.
package jsonrpc

import (
	"fmt"
	"strings"
	"unicode"

	"waldo/internal/protocol/strictjson"
)

// The error codes of JSON-RPC 2.0 §5.1, and those that MCP 2026-07-28 adds.
const (
	CodeParse       = -32700
	CodeInvalid     = -32600
	CodeNoMethod    = -32601
	CodeParams      = -32602
	CodeInternal    = -32603
	CodeBusy        = -32000 // ours: too much in flight
	CodeMismatch    = -32020 // MCP: the headers of HTTP say something else than the message
	CodeRefused     = -32001 // ours: refused, waiting or failed, where the result has no place to say so
	CodeNoResource  = -32002 // MCP until 2025-11-25: unknown resource
	CodeOpenFirst   = -32042 // MCP 2025-11-25: a person has to open an address first
	CodeCapability  = -32021 // MCP: the client lacks a capability
	CodeUnsupported = -32022 // MCP: the revision is not spoken here
)

// Error is an error answer. Its message is shown to the other side.
type Error struct {
	Code    int              `json:"code"`
	Message string           `json:"message"`
	Data    strictjson.Value `json:"data,omitzero"`
}

// Error returns the code and the message.
func (e *Error) Error() string { return fmt.Sprintf("JSON-RPC error %d: %s", e.Code, e.Message) }

// Errorf makes an error answer.
func Errorf(code int, format string, a ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, a...)}
}

// Trace is the traceparent and the tracestate of a message (W3C Trace Context), as they came.
type Trace struct{ Parent, State string }

// Proof is the verified proof of possession of an HTTP request: the thumbprint of its key, and the hash of its token.
type Proof struct{ Key, Token string }

// Message is a request (with ID and Method), a notification (Method alone) or an answer (ID alone).
type Message struct {
	ID     strictjson.Value // a string or a number; the zero Value for a notification
	Method string
	Params strictjson.Value // an object, or the zero Value
	Result strictjson.Value
	Err    *Error
	Key    string // of the Idempotency-Key header, if the transport has headers; empty: none
	Trace  Trace  // of the headers, if the transport has them
	Proof  Proof  // zero: none
	Size   int    // bytes of the frame
	Weight int    // about what it costs in memory while it is answered, in bytes
	Of     int64  // our request on whose stream it came, if the transport knows, as HTTP does; 0: unknown

	params    map[string]strictjson.Value // of Params, where it was parsed
	malformed *MalformedResponse          // in place of an answer that was no message
}

// Fault is the error that an answer is, an *Error or a *MalformedResponse; nil: it is a result.
func (m Message) Fault() error {
	switch {
	case m.malformed != nil:
		return m.malformed
	case m.Err != nil:
		return m.Err
	}
	return nil
}

// maxID bounds the JSON of an id, in bytes. waldo holds the id until the answer is sent.
const maxID = 1 << 10

// IsRequest reports whether m asks for an answer.
func (m Message) IsRequest() bool { return m.Method != "" && !m.ID.IsZero() }

// Param returns one member of the parameters, the zero Value where it is absent.
func (m Message) Param(name string) strictjson.Value {
	if m.params == nil {
		m.params, _ = m.Params.Members()
	}
	return m.params[name]
}

// weighed is from how many bytes on the values of a frame are counted.
const weighed = 64 << 10

// Parse parses one frame. Its error is the error to answer: CodeParse for bad JSON (duplicate names, invalid UTF-8,
// nesting deeper than strictjson.MaxDepth), CodeInvalid for JSON that is not a JSON-RPC 2.0 message. Names match
// exactly. A batch is invalid (MCP 2025-06-18 removed it). The Message holds the id of a refused request if it was
// readable. An error answer has no id, or null, if its sender could not read the id (JSON-RPC 2.0 §5).
func Parse(frame []byte) (Message, *Error) {
	v, err := strictjson.Parse(frame)
	if err != nil {
		return Message{}, Errorf(CodeParse, "not one strict JSON value: %s", printable(err.Error()))
	}
	var p parts
	if !v.Each(p.take) {
		return Message{}, Errorf(CodeInvalid, "a message is one JSON object")
	}
	m := Message{Size: len(frame), Weight: len(frame)}
	if len(frame) > weighed {
		m.Weight = strictjson.Weight(frame)
	}
	if !p.id.IsZero() {
		switch k := p.id.Kind(); {
		case k == 'n' && !p.fault.IsZero() && p.method.IsZero():
		case k != '"' && k != '0' || len(p.id.Raw()) > maxID:
			return m, Errorf(CodeInvalid, "an id is a string or a number of at most %d bytes", maxID)
		default:
			m.ID = p.id
		}
	}
	if version, _ := p.version.Text(); version != "2.0" {
		return m, Errorf(CodeInvalid, `"jsonrpc" must be "2.0"`)
	}
	if !p.method.IsZero() {
		return parseAsk(m, p)
	}
	return parseAnswer(m, p)
}

// maxWhy bounds, in bytes, how much of a reason that can quote a frame is shown.
const maxWhy = 200

// printable returns a short text that can quote a frame, without characters that do not show.
func printable(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), maxWhy)], "")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// parts are the members of a message; the zero Value where one is absent.
type parts struct{ id, version, method, params, result, fault strictjson.Value }

func (p *parts) take(name []byte, v strictjson.Value) {
	switch string(name) {
	case "id":
		p.id = v
	case "jsonrpc":
		p.version = v
	case "method":
		p.method = v
	case "params":
		p.params = v
	case "result":
		p.result = v
	case "error":
		p.fault = v
	}
}

func parseAsk(m Message, p parts) (Message, *Error) {
	name, ok := p.method.Text()
	if !ok || name == "" {
		return m, Errorf(CodeInvalid, "a method is a string")
	}
	if !p.result.IsZero() {
		return m, Errorf(CodeInvalid, "a request has no result")
	}
	if !p.params.IsZero() && p.params.Kind() != 'n' {
		if p.params.Kind() != '{' {
			return m, Errorf(CodeInvalid, "params are an object")
		}
		m.Params = p.params
		m.params, _ = p.params.Members() // parsed once: Param is called several times
	}
	m.Method = name
	return m, nil
}

func parseAnswer(m Message, p parts) (Message, *Error) {
	if m.ID.IsZero() && p.fault.IsZero() || p.result.IsZero() == p.fault.IsZero() {
		return m, Errorf(CodeInvalid, "neither a request nor an answer")
	}
	if !p.result.IsZero() {
		m.Result = p.result
		return m, nil
	}
	m.Err = &Error{Code: CodeInternal, Data: p.fault.Member("data")}
	if m.Err.Message, _ = p.fault.Member("message").Text(); m.Err.Message == "" {
		m.Err.Message = "an error without a message"
	}
	if code := p.fault.Member("code"); !code.IsZero() && code.Kind() == '0' {
		_ = code.Decode(&m.Err.Code) // a code that is not an integer stays CodeInternal
	}
	return m, nil
}

// Request makes the frame of a request, or of a notification when the id is the zero Value.
func Request(id strictjson.Value, method string, params any) ([]byte, error) {
	return frame(func(b []byte) ([]byte, error) {
		if !id.IsZero() {
			b = compact(append(b, `,"id":`...), id.Raw())
		}
		b = strictjson.AppendText(append(b, `,"method":`...), method)
		if params == nil {
			return b, nil
		}
		return encode(append(b, `,"params":`...), params)
	})
}

// Answer makes the frame of an answer. The zero id, of a request that had none to read, is null.
func Answer(id strictjson.Value, result any, fault *Error) []byte {
	if id.IsZero() {
		id = null
	}
	if fault == nil && result == nil {
		result = struct{}{}
	}
	member, value := `,"result":`, result
	if fault != nil {
		member, value = `,"error":`, fault
	}
	b, err := frame(func(b []byte) ([]byte, error) {
		b = compact(append(b, `,"id":`...), id.Raw())
		return encode(append(b, member...), value)
	})
	if err != nil && fault == nil { // a result that cannot be encoded is our own mistake
		return Answer(id, nil, Errorf(CodeInternal, "the answer could not be encoded"))
	}
	return b
}

var null, _ = strictjson.Parse([]byte("null"))
