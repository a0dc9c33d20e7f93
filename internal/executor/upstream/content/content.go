// Package content reads what a server puts into an answer: blocks of content, and addresses that a person opens.
package content

import (
	"encoding/base64"
	"net/url"
	"path/filepath"
	"strings"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/hostrule"
	"waldo/internal/protocol/strictjson"
)

// MaxBlocks is how many pieces of content one answer may have.
const MaxBlocks = 1000

// Read reads the blocks of an answer. It omits blocks of unknown types, and reports that.
func Read(v strictjson.Value) ([]call.Content, bool) {
	if v.IsZero() {
		return nil, true // a result may be structured content alone
	}
	blocks, ok := v.Elements()
	if !ok || len(blocks) > MaxBlocks {
		return nil, false
	}
	var out []call.Content
	for _, b := range blocks {
		switch kind, _ := b.Member("type").Text(); kind {
		case "text":
			s, ok := b.Member("text").Text()
			if !ok {
				return nil, false
			}
			out = append(out, call.Text(s))
		case "image", "audio":
			if isSVG(b) {
				out = append(out, call.Text("[an image/svg+xml was left out: it is a document that can hold scripts]"))
				continue
			}
			if !isMedia(kind, b) {
				out = append(out, call.Text("[what is no "+kind+" and was called one was left out]"))
				continue
			}
			out = append(out, call.Content{Type: kind, Raw: b})
		case "resource", "resource_link":
			out = append(out, call.Content{Type: kind, Raw: b})
		default:
			out = append(out, call.Text("[content of an unknown type was left out]"))
		}
	}
	return out, true
}

// isSVG reports whether an image says that it is an SVG.
func isSVG(b strictjson.Value) bool {
	mime, _ := b.Member("mimeType").Text()
	return strings.HasPrefix(strings.ToLower(mime), "image/svg")
}

// isMedia reports whether an image or a sound says that it is one, in base64: a host shows it by its own word.
func isMedia(kind string, b strictjson.Value) bool {
	mime, _ := b.Member("mimeType").Text()
	data, ok := b.Member("data").Text()
	_, err := base64.StdEncoding.DecodeString(data)
	return ok && err == nil && strings.HasPrefix(mime, kind+"/")
}

// Opens reports whether a person may be sent to an address: https, or http on this machine.
func Opens(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil ||
		strings.ContainsFunc(address, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && hostrule.Loopback(u.Hostname())
}

// Addresses checks the data of an error that asks a person to open addresses first. It reports whether every address
// is allowed (MCP 2025-11-25 client/elicitation).
func Addresses(data strictjson.Value) bool {
	m, _ := data.Members()
	list, ok := m["elicitations"].Elements()
	for _, v := range list {
		one, _ := v.Members()
		address, _ := one["url"].Text()
		ok = ok && Opens(address)
	}
	return ok
}

// Named reports whether s is a tool's name (MCP 2025-11-25 server/tools).
func Named(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for _, r := range s {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-', r == '.':
		default:
			return false
		}
	}
	return true
}

// Folders answers roots/list with the folders of the operator's configuration.
func Folders(s contract.Server) strictjson.Value {
	list := []any{}
	for _, f := range s.Asks.Roots {
		if abs, err := s.At.Beside(f); err == nil {
			u := url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}
			list = append(list, map[string]string{"uri": u.String(), "name": filepath.Base(abs)})
		}
	}
	a, _ := call.ArgsOf(map[string]any{"roots": list}) // strings encode
	return a.Value()
}
