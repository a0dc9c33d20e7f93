package sandboxflags

import (
	"strings"

	"waldo/internal/cli/exitcode"
	"waldo/internal/storage/workspace"
)

// Path is a path in a sandbox.
type Path struct {
	Name   string
	Folder workspace.Folder
	Path   string // below the folder; empty: the folder itself
}

// ParsePath parses NAME:PATH. A text without a colon, or with a slash before it, is a path of this machine.
func ParsePath(s string) (Path, bool) {
	name, rest, ok := strings.Cut(s, ":")
	if !ok || name == "" || strings.ContainsAny(name, "/.") {
		return Path{}, false
	}
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, "/workspace"), "/")
	folder, file, _ := strings.Cut(rest, "/")
	switch f := workspace.Folder(folder); f {
	case workspace.Input, workspace.Output, workspace.Tmp:
		return Path{name, f, strings.TrimSuffix(file, "/")}, true
	}
	rest = strings.TrimSuffix(rest, "/")
	if rest == "." {
		rest = ""
	}
	return Path{name, workspace.Files, rest}, true
}

func (i Path) Check() error {
	if i.Folder == workspace.Tmp {
		return exitcode.Mistake("as in work:data.csv", "%s:%s: files in tmp are not saved", i.Name, i.Folder)
	}
	return nil
}
