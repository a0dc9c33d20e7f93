package files

import (
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"waldo/internal/detect/pattern"
	"waldo/internal/executor/keyfiles"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

var (
	errRuns = errors.New("it is a name by which programs of this machine run something or find their settings; " +
		"this tool does not change it")
	errKeys = errors.New("programs keep passwords and keys under this name; this tool does not read it")
	errName = errors.New("this name is a device or another name of the file; write the name that files.list shows")
)

// settings are names, at any depth, that this tool does not write, beside those that a server's writable folder keeps
// sealed: a program of this machine would run what they name.
var settings = append(files.Runs(), ".ssh", ".gitmodules", ".gitattributes", ".lfsconfig", ".bashrc",
	".bash_profile", ".bash_login", ".bash_logout",
	".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".netrc",
	".gitconfig", ".devcontainer", ".pre-commit-config.yaml", ".config", ".hg", ".hgrc", ".cargo", ".exrc", ".envrc",
	"opencode.json", "lefthook.yml", ".lefthook.yml", "mise.toml", ".mise.toml", ".pnpmfile.cjs", ".gdbinit", ".lldbinit",
	".dir-locals.el",
	"head") // of a bare repository: Git takes a folder with HEAD, objects and refs for one, and runs what its config names

// hidden reports a name that this tool acts as if it were not there: its trash, and its files under way.
func hidden(name string) bool {
	name = folded(name)
	first, _, _ := strings.Cut(name, "/")
	return first == trashDir || strings.Contains("/"+name, "/"+newFile)
}

// folded returns a path in the form in which its names are compared (keyfiles.Folded), with slashes.
func folded(path string) string {
	parts := strings.Split(filepath.ToSlash(path), "/")
	for i, part := range parts {
		if part != "." {
			parts[i] = keyfiles.Folded(part)
		}
	}
	return strings.Join(parts, "/")
}

// shortName is the form of the second name that Windows gives to a file with a long one, as GIT~1 to .git.
var shortName = pattern.Lazy(`^[^.]{0,6}~[0-9]{1,6}(\..*)?$`)

// devices are names that Windows takes for a device, with any ending (learn.microsoft.com, "Naming Files").
var devices = strings.Fields("con prn aux nul conin$ conout$ clock$ " +
	"com0 com1 com2 com3 com4 com5 com6 com7 com8 com9 com¹ com² com³ " +
	"lpt0 lpt1 lpt2 lpt3 lpt4 lpt5 lpt6 lpt7 lpt8 lpt9 lpt¹ lpt² lpt³")

// otherOnWindows reports whether one part of a path names something else on Windows than it says: by a short name, a
// device, a stream of a file, another separator, or an end that Windows drops.
func otherOnWindows(part string) bool {
	if part == "." || part == ".." {
		return false
	}
	base, _, _ := strings.Cut(keyfiles.Folded(part), ".")
	return strings.ContainsAny(part, `\:`) || strings.TrimRight(part, " .") != part || shortName().MatchString(part) ||
		slices.Contains(devices, strings.TrimRight(base, " "))
}

// protects returns why a place is not read or written. A name counts without regard to case, as some file systems
// have it.
func protects(name string, write bool) error { return protectsOn(runtime.GOOS, name, write) }

func protectsOn(system, name string, write bool) error {
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case system == "windows" && otherOnWindows(part):
			return errName
		case write && slices.Contains(settings, keyfiles.Folded(part)):
			return errRuns
		case keyfiles.Is(part):
			return errKeys
		}
	}
	return nil
}

// judge refuses a change of a protected name when the call is decided, so that no human is asked about it. Links count
// when the call is carried out.
func judge(c call.Call, _ contract.Contract) (int, *call.Reason) {
	switch c.Capability {
	case "files.write", "files.edit", "files.move", "files.extract":
	default:
		return 0, nil
	}
	for _, argument := range []string{"path", "from", "to", "into"} {
		at, ok := c.Args.Values()[argument].(string)
		if err := protects(at, argument != "path" || c.Capability != "files.extract"); ok && err != nil {
			return 0, &call.Reason{Code: "files.refused", Text: about(at, err).Error()}
		}
	}
	return 0, nil
}
