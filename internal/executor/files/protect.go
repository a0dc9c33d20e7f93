package files

import (
	"errors"
	"slices"
	"strings"
	"unicode"

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

// keys are names, at any depth, that this tool does not read: their usual content is a credential.
var keys = []string{".ssh", ".gnupg", ".aws", ".azure", ".kube", ".npmrc", ".yarnrc.yml", ".pypirc", ".netrc", ".pgpass",
	".git-credentials", ".docker", ".env", ".env~", ".envrc", ".vault-token", "id_rsa", "id_ed25519", "id_ecdsa", "id_dsa",
	"credentials.toml"}

// templates of .env files, which have no values, can be read.
var templates = []string{".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults"}

// hidden reports a name that this tool acts as if it were not there: its trash, and its files under way.
func hidden(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return strings.EqualFold(first, trashDir) || strings.Contains("/"+name, "/"+newFile)
}

// protects returns why a place is not read or written. A name counts without regard to case, as some file systems
// have it.
func protects(name string, write bool) error {
	for part := range strings.SplitSeq(name, "/") {
		part = folded(part)
		switch {
		case write && slices.Contains(settings, part):
			return errRuns
		case slices.Contains(keys, part), strings.HasPrefix(part, ".env.") && !slices.Contains(templates, part):
			return errKeys
		}
	}
	return nil
}

// folded returns a name as file systems compare it that keep apart fewer names than Linux: without regard to case, with
// the long s as an s (APFS), without letters that have no form (HFS+), and without blanks and dots at its end (Windows).
func folded(part string) string {
	part = strings.Map(func(c rune) rune {
		switch {
		case c == '\u017f':
			return 's'
		case unicode.Is(unicode.Cf, c), unicode.Is(unicode.Variation_Selector, c), c == '\u034f':
			return -1
		}
		return c
	}, part)
	return strings.ToLower(strings.TrimRight(part, " ."))
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
