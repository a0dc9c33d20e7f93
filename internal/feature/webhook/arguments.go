package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/inbox"
)

// arguments are those of a call for a delivery. A whole text such as "$payload" is replaced by a value that the webhook
// brings; a text that only holds such a word is left as it is, so that nothing is built out of parts.
func arguments(written map[string]any, d *inbox.Delivery) (call.Args, error) {
	f := &filler{d: d}
	v, err := f.fill(written)
	if err != nil {
		return call.Args{}, err
	}
	return call.ArgsOf(v)
}

// filler reads the body once, when a value of it is wanted.
type filler struct {
	d    *inbox.Delivery
	json any
	read bool
}

func (f *filler) fill(v any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, one := range v {
			filled, err := f.fill(one)
			if err != nil {
				return nil, err
			}
			out[name] = filled
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, one := range v {
			var err error
			if out[i], err = f.fill(one); err != nil {
				return nil, err
			}
		}
		return out, nil
	case string:
		return f.word(v)
	}
	return v, nil
}

// word is the value that a text stands for.
func (f *filler) word(s string) (any, error) {
	switch {
	case s == "$payload":
		if !utf8.Valid(f.d.Body) {
			return nil, errors.New("$payload: the payload is not text in UTF-8")
		}
		return string(f.d.Body), nil
	case s == "$event":
		return f.d.Event, nil
	case s == "$delivery":
		return f.d.ID, nil
	case s == "$hook":
		return f.d.Hook, nil
	case s == "$json" || strings.HasPrefix(s, "$json/"):
		return f.pointer(strings.TrimPrefix(s, "$json"))
	}
	return s, nil
}

// pointer is the value at a JSON pointer (RFC 6901) of the payload.
func (f *filler) pointer(path string) (any, error) {
	if !f.read {
		v, err := strictjson.Parse(f.d.Body)
		if err != nil {
			return nil, fmt.Errorf("$json: the payload is not JSON: %w", err)
		}
		f.json = json.RawMessage(v.Raw())
		f.read = true
	}
	at, _ := f.json.(json.RawMessage)
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if path == "" {
			break
		}
		var object map[string]json.RawMessage
		var list []json.RawMessage
		name, ok := strings.NewReplacer("~1", "/", "~0", "~").Replace(part), false
		if json.Unmarshal(at, &object) == nil && object != nil {
			at, ok = object[name]
		} else if i, err := strconv.Atoi(name); err == nil && json.Unmarshal(at, &list) == nil && i >= 0 && i < len(list) {
			at, ok = list[i], true
		}
		if !ok {
			return nil, fmt.Errorf("$json%s: the payload has no such value", display.Line(path))
		}
	}
	return at, nil
}
