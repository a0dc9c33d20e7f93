package files

import (
	"errors"
	"slices"
	"strings"

	"waldo/internal/executor/keyfiles"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/call"
)

var (
	errRuns = errors.New("it is a name by which programs of this machine run something or find their settings; " +
		"this tool does not change it")
	errKeys = errors.New("programs keep passwords and keys under this name; this tool does not read it")
)

// settings are names, at any depth, that this tool does not write, beside those that a server's writable folder keeps
// sealed: a program of this machine would run what they name.
var settings = append(files.Runs(), ".ssh", ".gitmodules", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout",
	".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".netrc",
	".gitconfig", ".devcontainer", ".pre-commit-config.yaml", ".config", ".hg", ".hgrc", ".cargo", ".exrc", ".envrc",
	"opencode.json",
	"head") // of a bare repository: Git takes a folder with HEAD, objects and refs for one, and runs what its config names

// hidden reports a name that this tool acts as if it were not there: its trash, and its files under way.
func hidden(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return strings.EqualFold(first, trashDir) || strings.Contains("/"+name, "/"+newFile)
}

// protects returns why a place is not read or written. A name counts without regard to case, as some file systems
// have it.
func protects(name string, write bool) error {
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case write && slices.Contains(settings, keyfiles.Folded(part)):
			return errRuns
		case keyfiles.Is(part):
			return errKeys
		}
	}
	return nil
}

// Judge refuses a change of a protected name when the call is decided, so that no human is asked about it. Links count
// when the call is carried out.
func Judge(c call.Call) *call.Reason {
	switch c.Capability {
	case "files.write", "files.edit", "files.move", "files.extract":
	default:
		return nil
	}
	for _, argument := range []string{"path", "from", "to", "into"} {
		at, ok := c.Args.Values()[argument].(string)
		if err := protects(at, argument != "path" || c.Capability != "files.extract"); ok && err != nil {
			return &call.Reason{Code: "files.refused", Text: about(at, err).Error()}
		}
	}
	return nil
}
