// Package codegen writes Python and TypeScript for the tools of one MCP server: one module per tool, with typed
// parameters and a call. It does no I/O. All text of a server is hostile: it reaches a file only inside a string
// literal of printable characters.
package codegen

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"waldo/internal/protocol/strictjson"
)

// Tool is one tool as its server defines it. Input and Output may be the zero Value.
type Tool struct {
	Name        string
	Title       string
	Description string
	Input       strictjson.Value
	Output      strictjson.Value
}

// Server names the server whose tools are called.
type Server struct {
	Name string // as waldo.yaml calls it
	URL  string // where it listens; empty: it is reached through waldo alone
}

// Language is a language to write.
type Language string

// The languages.
const (
	Python     Language = "python"
	TypeScript Language = "typescript"
)

// Languages lists every language.
var Languages = []Language{Python, TypeScript}

// File is one file to write. Path is relative, with slashes.
type File struct {
	Path string
	Text []byte
	Tool string // the tool that it calls; empty: it serves all
}

// MaxTools is the most tools of one server.
const MaxTools = 10_000

//go:embed client/client.py client/client.ts
var clients embed.FS

// Generate returns the files of a server, sorted by path. Equal input gives equal files in any order of the tools.
func Generate(s Server, tools []Tool, languages []Language) ([]File, error) {
	if len(tools) > MaxTools {
		return nil, fmt.Errorf("%d tools: at most %d", len(tools), MaxTools)
	}
	tools = slices.Clone(tools)
	slices.SortFunc(tools, func(a, b Tool) int { return strings.Compare(a.Name, b.Name) })
	wire := make([]string, len(tools))
	for i, t := range tools {
		wire[i] = t.Name
		if i > 0 && wire[i-1] == t.Name {
			return nil, fmt.Errorf("two tools are called %q", t.Name)
		}
	}
	modules, shapes := moduleNames(wire), make([]shape, len(tools))
	for i, t := range tools {
		shapes[i] = shapeOf(t)
	}
	folder := "servers/" + Folder(s.Name)
	var out []File
	for _, l := range languages {
		w, ok := writers[l]
		if !ok {
			return nil, fmt.Errorf("no language is called %q", l)
		}
		add := func(name, tool, text string) {
			out = append(out, File{Path: folder + "/" + name + w.suffix, Text: mark(w.comment, s.Name, text), Tool: tool})
		}
		client, err := clients.ReadFile("client/client" + w.suffix)
		if err != nil {
			return nil, err
		}
		add("_client", "", w.constants(s)+string(client))
		add(w.index, "", w.list(wire, modules))
		for i, t := range tools {
			add(modules[i], t.Name, w.module(t, shapes[i]))
		}
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// shape is the schemas of a tool as types, the same for every language.
type shape struct {
	params           *object
	objects, results []*object
	result           *typ
}

func shapeOf(t Tool) (s shape) {
	s.params, s.objects = readParams(t.Input)
	s.result, s.results = readSchema(t.Output, "Result")
	return s
}

// writer writes one language.
type writer struct {
	suffix, comment, index string
	constants              func(Server) string
	list                   func(wire, modules []string) string
	module                 func(Tool, shape) string
}

var writers = map[Language]writer{
	Python:     {".py", "# ", "__init__", pythonConstants, pythonIndex, writePython},
	TypeScript: {".ts", "// ", "index", typescriptConstants, typescriptIndex, writeTypeScript},
}

const marker = "Written by waldo gen, which replaces it. sha256 "

// mark puts the digest of a server's name and of the text into the first line.
func mark(comment, server, text string) []byte {
	return []byte(comment + marker + digest(server+"\x00"+text) + "\n" + text)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// The errors of Owned.
var (
	ErrForeign = errors.New("waldo gen did not write it")
	ErrChanged = errors.New("it was changed since waldo gen wrote it, or it is of another server")
)

// Owned returns nil if Generate wrote exactly this text for the server.
func Owned(server string, text []byte) error {
	first, rest, _ := strings.Cut(string(text), "\n")
	for _, w := range writers {
		if sum, ok := strings.CutPrefix(first, w.comment+marker); ok {
			if sum != digest(server+"\x00"+rest) {
				return ErrChanged
			}
			return nil
		}
	}
	return ErrForeign
}
