package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"

	"waldo/internal/protocol/strictjson"
)

// Appender writes itself as strict JSON on one line.
type Appender interface {
	AppendJSON(b []byte) []byte
}

// scratch holds buffers in which frames are written before they are copied at their size.
var scratch = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

const maxScratch = 64 << 10 // larger buffers are not reused

// frame makes one line, of the members that fill appends.
func frame(fill func(b []byte) ([]byte, error)) ([]byte, error) {
	p := scratch.Get().(*[]byte)
	b, err := fill(append((*p)[:0], `{"jsonrpc":"2.0"`...))
	out := bytes.Clone(append(b, "}\n"...))
	if cap(b) <= maxScratch {
		*p = b
		scratch.Put(p)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

var errRaw = errors.New("a raw value is not JSON")

// encode appends a value as encoding/json would write it, for the forms that messages are made of
// without reflection. The white space of raw values goes, line breaks included, so that nothing inside
// a message ever starts another one.
func encode(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case strictjson.Value:
		if v.IsZero() {
			return append(b, "null"...), nil
		}
		return compact(b, v.Raw()), nil
	case string:
		return strictjson.AppendText(b, v), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case struct{}:
		return append(b, "{}"...), nil
	case Appender:
		return v.AppendJSON(b), nil
	case map[string]any:
		return object(b, v)
	case []any:
		return array(b, v)
	}
	var rest bytes.Buffer
	e := json.NewEncoder(&rest)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return b, err
	}
	if bytes.IndexByte(rest.Bytes(), '\n') != rest.Len()-1 {
		return b, errRaw
	}
	return append(b, bytes.TrimSuffix(rest.Bytes(), []byte{'\n'})...), nil
}

func object(b []byte, m map[string]any) ([]byte, error) {
	if m == nil {
		return append(b, "null"...), nil
	}
	names := make([]string, 0, 8)
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	b = append(b, '{')
	var err error
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = encode(append(strictjson.AppendText(b, name), ':'), m[name]); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

func array(b []byte, l []any) ([]byte, error) {
	if l == nil {
		return append(b, "null"...), nil
	}
	b = append(b, '[')
	var err error
	for i, v := range l {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = encode(b, v); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

// compact appends a JSON value without the white space between its tokens.
func compact(b, raw []byte) []byte {
	quoted, from := false, 0
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && (c == ' ' || c == '\n' || c == '\t' || c == '\r'):
			b = append(b, raw[from:i]...)
			from = i + 1
		}
	}
	return append(b, raw[from:]...)
}
