package web

import (
	"encoding/base64"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"waldo/internal/frontend/mcpserver"
	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
)

// The headers of MCP, in the form that net/http gives them.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerLast    = "Last-Event-Id"
	headerKey     = "Idempotency-Key"
	headerParam   = "Mcp-Param-" // and the name that a tool's schema gives
)

// HeaderDelegation names the token of a delegation over REST. MCP and A2A have it in their messages.
const HeaderDelegation = "Waldo-Delegation"

// single are the headers that two readers could take differently if a request had two of them; once are those of MCP.
var (
	single = []string{"Authorization", "Content-Type", "Origin", HeaderDelegation}
	once   = []string{headerVersion, headerSession, headerMethod, headerName, headerLast, headerKey}
)

// repeated refuses a request that has two of a header that must be single, and reports whether it did.
func repeated(w http.ResponseWriter, r *http.Request, names []string) bool {
	for _, name := range names {
		if len(r.Header[name]) > 1 {
			http.Error(w, "the header "+name+" stands twice", http.StatusBadRequest)
			return true
		}
	}
	return false
}

// named is where the message says what Mcp-Name repeats.
var named = map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri",
	"tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}

// agree compares the headers of a POST with its message, and reports whether the request is of the modern era. An
// intermediary can route by the headers, so modern headers must match the body, which alone takes effect (MCP
// 2026-07-28 streamable-http, Server Validation). A legacy request makes no such promise: only its revision header is
// checked.
func agree(h http.Header, m jsonrpc.Message) (modern bool, fault *jsonrpc.Error) {
	version := h.Get(headerVersion)
	meta, _ := m.Param("_meta").Members()
	said, _ := meta[jsonrpc.MetaRevision].Text()
	if version < jsonrpc.Modern && said < jsonrpc.Modern {
		if version != "" && !slices.Contains(jsonrpc.LegacyRevisions, version) {
			return false, jsonrpc.Errorf(jsonrpc.CodeInvalid, "%s names no revision that is spoken here", headerVersion)
		}
		return false, nil
	}
	if m.Method == "" {
		return true, jsonrpc.Errorf(jsonrpc.CodeInvalid, "a client of this revision sends no answers")
	}
	if !m.IsRequest() {
		return true, nil // the revision defines no headers for notifications
	}
	switch {
	case version == "":
		return true, mismatch("%s is missing", headerVersion)
	case said == "":
		return true, jsonrpc.Errorf(jsonrpc.CodeParams, "_meta lacks %s", jsonrpc.MetaRevision)
	case version != said:
		return true, mismatch("%s is not what the message says", headerVersion)
	}
	if _, fault = mcpserver.Revision(m); fault != nil {
		return true, fault
	}
	if h.Get(headerMethod) != m.Method {
		return true, mismatch("%s is not what the message says", headerMethod)
	}
	if in := named[m.Method]; in != "" {
		name, _ := m.Param(in).Text()
		if told, ok := decode(h.Get(headerName)); !ok || told != name {
			return true, mismatch("%s is not what the message says", headerName)
		}
	}
	for name := range h {
		if strings.HasPrefix(name, headerParam) { // no tool that is shown here asks for any
			return true, mismatch("no tool asks for the header %.100s", name)
		}
	}
	return true, nil
}

func mismatch(format string, a ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeMismatch, format, a...)
}

// decode reads a header's value: plain, or between =?base64? and ?= where it is not plain ASCII.
func decode(s string) (string, bool) {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }) {
		return "", false
	}
	inner, ok := strings.CutPrefix(s, "=?base64?")
	if !ok || !strings.HasSuffix(inner, "?=") {
		return s, true
	}
	b, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSuffix(inner, "?="))
	return string(b), err == nil && utf8.Valid(b)
}

// plain reports whether the request's Content-Type is JSON.
func plain(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// takes reports whether a client takes an answer of every one of the kinds.
func takes(h http.Header, kinds ...string) bool {
	accept := h.Values("Accept")
	if len(accept) == 0 {
		return true // RFC 9110 §12.5.1
	}
	var ranges []string
	for r := range strings.SplitSeq(strings.ToLower(strings.Join(accept, ",")), ",") {
		kind, _, _ := strings.Cut(r, ";")
		ranges = append(ranges, strings.TrimSpace(kind))
	}
	for _, kind := range kinds {
		family, _, _ := strings.Cut(kind, "/")
		if !slices.Contains(ranges, kind) && !slices.Contains(ranges, family+"/*") && !slices.Contains(ranges, "*/*") {
			return false
		}
	}
	return true
}

// TraceOf returns the place in a trace that the headers of a request name. Two places are none.
func TraceOf(h http.Header) call.Trace {
	parents := h.Values("Traceparent")
	if len(parents) != 1 {
		return call.Trace{}
	}
	return call.TraceOf(parents[0], strings.Join(h.Values("Tracestate"), ","))
}
