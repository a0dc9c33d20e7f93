package codefiles

import (
	"bytes"
	"errors"
	"io/fs"
	"os"

	"waldo/internal/app/fault"
	"waldo/internal/codegen"
	"waldo/internal/codegen/learned"
)

// shapesName is the file beside generated code with the shapes of observed results.
const shapesName = "results.json"

// Shapes reads the shapes of a server's results from the folder of its code. There are none in a new folder.
func Shapes(folder, server string) (learned.Shapes, error) {
	root, err := os.OpenRoot(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return learned.Shapes{}, nil
	}
	if err != nil {
		return learned.Shapes{}, err
	}
	defer root.Close()
	at := shapesOf(server)
	b, err := read(root, at)
	if errors.Is(err, fs.ErrNotExist) {
		return learned.Shapes{}, nil
	}
	if err != nil {
		return learned.Shapes{}, err
	}
	s, err := learned.Read(b)
	if err != nil {
		return s, fault.Usage("move it away, and learn again", "%s: %v", at, err)
	}
	return s, nil
}

// WriteShapes writes the shapes of a server's results into the folder of its code. It reports whether they differ from
// those that were there.
func WriteShapes(folder, server string, s learned.Shapes) (changed bool, err error) {
	b, err := s.Text()
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return false, err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return false, err
	}
	defer root.Close()
	at := shapesOf(server)
	old, err := read(root, at)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if bytes.Equal(old, b) {
		return false, nil
	}
	return true, replace(root, codegen.File{Path: at, Text: b})
}

func shapesOf(server string) string { return "servers/" + codegen.Folder(server) + "/" + shapesName }
