package mcphttp

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// mirrored is one argument of a tool that is sent as a header too.
type mirrored struct {
	header string   // Mcp-Param-Region
	path   []string // of properties, from the root of the arguments
}

// mirror copies the place in a trace from _meta into the head, for proxies on the way, and what MCP requires there
// since 2026-07-28: the method, the name, and the arguments that a tool's schema marks
// (basic/transports/streamable-http, request metadata).
func (c *Conn) mirror(h http.Header, body []byte, modern bool) {
	if !modern && !bytes.Contains(body, []byte(`"traceparent"`)) {
		return
	}
	m, fault := jsonrpc.Parse(body)
	if fault != nil || m.Method == "" {
		return
	}
	meta, _ := m.Param("_meta").Members()
	for _, name := range []string{"traceparent", "tracestate"} {
		if v, _ := meta[name].Text(); v != "" {
			h.Set(name, v)
		}
	}
	if !modern {
		return
	}
	h.Set("Mcp-Method", m.Method)
	name, _ := m.Param("name").Text()
	switch m.Method {
	case "resources/read":
		name, _ = m.Param("uri").Text()
	case "tasks/get", "tasks/update", "tasks/cancel":
		name, _ = m.Param("taskId").Text()
	case "tools/call", "prompts/get":
	default:
		return
	}
	h.Set("Mcp-Name", encoded(name))
	if m.Method != "tools/call" {
		return
	}
	c.mu.Lock()
	marks := c.headers[name]
	c.mu.Unlock()
	for _, k := range marks {
		if text, ok := textOf(m.Param("arguments"), k.path); ok {
			h.Set(k.header, encoded(text))
		}
	}
}

// textOf returns the argument at a path as it stands in a header; not if it is absent, null or no
// text, integer or truth value.
func textOf(v strictjson.Value, path []string) (string, bool) {
	for _, name := range path {
		members, _ := v.Members()
		v = members[name]
	}
	if v.IsZero() {
		return "", false
	}
	switch v.Kind() {
	case '"':
		return v.Text()
	case 't', 'f', '0':
		return string(v.Canonical()), true
	}
	return "", false
}

// encoded returns a value as a header can hold it: as it is, or in base64 between markers.
func encoded(s string) string {
	const open, end = "=?base64?", "?="
	plain := strings.TrimSpace(s) == s && !(strings.HasPrefix(s, open) && strings.HasSuffix(s, end)) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r != '\t' && (r < ' ' || r > '~') })
	if plain {
		return s
	}
	return open + base64.StdEncoding.EncodeToString([]byte(s)) + end
}

// learn remembers which arguments the tools of a list want in the head.
func (c *Conn) learn(method string, result strictjson.Value) {
	if method != "tools/list" {
		return
	}
	members, _ := result.Members()
	tools, _ := members["tools"].Elements()
	for _, t := range tools {
		tool, _ := t.Members()
		name, _ := tool["name"].Text()
		marks, err := marks(tool["inputSchema"])
		if err != nil {
			marks = nil // the tool is not offered: see Headers
		}
		c.mu.Lock()
		if len(marks) > 0 {
			c.headers[name] = marks
		} else {
			delete(c.headers, name)
		}
		c.mu.Unlock()
	}
}

// Headers says what is wrong with the x-mcp-header marks of a tool's input schema; nil: nothing. A
// tool whose marks are wrong must not be offered (2026-07-28, schema extension).
func Headers(schema strictjson.Value) error {
	_, err := marks(schema)
	return err
}

// mark is the name under which a schema asks for a header.
const mark = "x-mcp-header"

// marks returns the arguments that a schema wants as headers. A mark stands on a property of type
// string, integer or boolean that a chain of properties leads to, and nowhere else.
func marks(schema strictjson.Value) ([]mirrored, error) {
	// the x and the rest may be escaped too: then it is not a mark
	if !strings.Contains(string(schema.Raw()), mark[2:]) {
		return nil, nil
	}
	found, seen := []mirrored{}, map[string]bool{}
	err := reachable(schema, nil, &found, seen)
	if err == nil && count(schema) != len(found) {
		err = fmt.Errorf("%s stands where no argument of the tool is", mark)
	}
	return found, err
}

func reachable(schema strictjson.Value, path []string, found *[]mirrored, seen map[string]bool) error {
	members, _ := schema.Members()
	properties, _ := members["properties"].Members()
	for name, p := range properties {
		here := append(path[:len(path):len(path)], name)
		m, _ := p.Members()
		if k, has := m[mark]; has {
			header, _ := k.Text()
			kind, _ := m["type"].Text()
			switch {
			case !token(header):
				return fmt.Errorf("%s: %.40q cannot be the name of a header", mark, header)
			case seen[strings.ToLower(header)]:
				return fmt.Errorf("%s: %.40q is there twice", mark, header)
			case kind != "string" && kind != "integer" && kind != "boolean":
				return fmt.Errorf("%s: %.40q is neither a string, an integer nor a boolean", mark, name)
			}
			seen[strings.ToLower(header)] = true
			*found = append(*found, mirrored{"Mcp-Param-" + header, here})
		}
		if err := reachable(p, here, found, seen); err != nil {
			return err
		}
	}
	return nil
}

// count returns how many marks a schema holds, wherever they stand.
func count(v strictjson.Value) int {
	n := 0
	if m, ok := v.Members(); ok {
		for name, part := range m {
			if name == mark {
				n++
			}
			if name == "properties" { // here the names are the operator's arguments, and no keywords
				parts, _ := part.Members()
				for _, p := range parts {
					n += count(p)
				}
				continue
			}
			n += count(part)
		}
		return n
	}
	e, _ := v.Elements()
	for _, part := range e {
		n += count(part)
	}
	return n
}

// token reports whether s is a token of HTTP (RFC 9110 §5.6.2).
func token(s string) bool {
	return s != "" && len(s) <= 128 &&
		strings.Trim(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
