// Package files decides which files of this machine the sandbox of a server is shown: its program, the script of an
// interpreter, and the configured mounts. An argument alone opens nothing.
package files

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/detect/pattern"
	"waldo/internal/model/contract"
)

// Mount is one file or folder of this machine, as the sandbox has it.
type Mount struct {
	Writable bool `json:"writable,omitempty"`
	// Sealed are the paths below a writable folder that are read-only: they make other programs run something.
	Sealed []string `json:"sealed,omitempty"`
	Source string   `json:"source"` // on this machine, its links resolved
	Target string   `json:"target"` // in the sandbox
	Why    string   `json:"why"`    // program, script, mounts or package
}

// Fault is the reason why a server's sandbox cannot be made as configured, with a hint.
type Fault struct {
	At      contract.Position
	Text    string
	Hint    string
	Refused bool // no line can show it: it is too much of this machine
	Missing bool // it is not on this machine
}

// Error satisfies error.
func (f Fault) Error() string {
	if f.Hint == "" {
		return f.Text
	}
	return f.Text + ": " + f.Hint
}

// Machine holds the paths of this machine that decide which files can be shown.
type Machine struct {
	Homes []string // home folders of the user, whole paths
	State string   // waldo's state directory
	// changeable are the folders that some server can write; see For.
	changeable []string
	places     map[string]string // see Places
}

// Here is this machine, with waldo's state in that directory.
func Here(state string) Machine {
	m := Machine{State: resolved(state), Homes: []string{"/root"}}
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) && filepath.Clean(home) != "/" {
		m.Homes = append(m.Homes, resolved(home))
	}
	return m
}

// resolved is a path without links, as far as it exists.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// Shown returns the command of a server as run, the mounts of its sandbox, and the faults. A package that waldo
// installs runs another program, with the arguments of the command.
func (m Machine) Shown(s contract.Server, packaged bool) (argv []string, shown []Mount, faults []Fault) {
	switch {
	case len(s.Command) == 0 || s.Command[0] == "":
		return nil, nil, []Fault{{At: s.At, Text: "the command is empty", Hint: "name a program"}}
	case s.Placement == "outside":
		return outside(s)
	}
	if shown, faults = m.mounts(s); packaged {
		return s.Command, shown, append(faults, m.arguments(s, s.Command[1:], shown)...)
	}
	argv, more, wrong := m.command(s, shown)
	return argv, append(shown, more...), append(faults, wrong...)
}

// Words returns a command that runs outside any sandbox, with the relative words that name files made absolute: they
// start at the folder of the configuration. Such are a program with a slash, a word that begins with ./ or ../, and
// one that is the name of a regular file; also behind the = of an option.
func Words(at contract.Position, command []string) []string {
	argv := slices.Clone(command)
	for i, word := range argv {
		option, value := "", word
		if name, v, ok := strings.Cut(word, "="); ok && strings.HasPrefix(word, "-") {
			option, value = name+"=", v
		}
		if value == "" || i == 0 && !strings.Contains(value, "/") || i > 0 && option == "" && value[0] == '-' {
			continue
		}
		path, err := at.Beside(value)
		info, none := os.Stat(path)
		if err == nil && (i == 0 || strings.HasPrefix(value, "./") || strings.HasPrefix(value, "../") ||
			none == nil && info.Mode().IsRegular()) {
			argv[i] = option + path
		}
	}
	return argv
}

// outside resolves a command that runs outside any sandbox: it needs no mounts.
func outside(s contract.Server) (argv []string, _ []Mount, faults []Fault) {
	argv = Words(s.At, s.Command)
	_, err := exec.LookPath(argv[0])
	if err != nil && !exists(argv[0]) {
		faults = []Fault{{At: s.CommandAt, Missing: true, Text: "no such program: " + err.Error(),
			Hint: "install it, or name one that exists"}}
	}
	return argv, nil, faults
}

// Path are the folders in which a sandbox looks for the program of a server.
var Path = []string{"/usr/local/bin", "/usr/bin", "/bin"}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// mounts returns the configured mounts, and the faults of those that cannot be shown.
func (m Machine) mounts(s contract.Server) (shown []Mount, faults []Fault) {
	all := slices.Clone(s.Mounts)
	if s.Input != "" {
		all = append(all, contract.Mount{Target: "/workspace/input", From: s.Input, At: s.At})
	}
	for _, x := range all {
		from, err := m.Place(x.At, x.From)
		if f := (Fault{}); errors.As(err, &f) && f.Refused {
			f.Text = "mounts: " + x.Target + ": " + f.Text
			faults = append(faults, f)
			continue
		}
		if err != nil {
			faults = append(faults, Fault{
				At: x.At, Text: fmt.Sprintf("mounts: %s: %v", x.Target, err), Hint: "name a file or folder that exists",
				Missing: true,
			})
			continue
		}
		why := ""
		if written, berr := s.At.Beside(x.From); berr == nil {
			if w := m.below(written); w != "" {
				why = "is below " + w + ", in which a server can put another in its place"
			}
		}
		if why != "" {
			faults = append(faults, Fault{At: x.At, Refused: true, Text: fmt.Sprintf("mounts: %s: %s %s", x.Target, from, why),
				Hint: "name a folder that holds only files that the server needs"})
			continue
		}
		shown = append(shown, Mount{Source: from, Target: x.Target, Why: "mounts"})
		if x.Writable {
			if fault := writable(&shown[len(shown)-1], s, x); fault != nil {
				faults, shown = append(faults, *fault), shown[:len(shown)-1]
			}
		}
	}
	return shown, faults
}

// command returns the command of a server as its sandbox runs it. It makes relative paths of the program and of an
// interpreter's script absolute, and mounts these two files. shown are the configured mounts.
func (m Machine) command(s contract.Server, shown []Mount) (argv []string, more []Mount, faults []Fault) {
	argv = slices.Clone(s.Command)
	for _, x := range []struct {
		at  int
		why string
	}{{0, "program"}, {scriptOf(argv), "script"}} {
		if x.at < 0 || x.at >= len(argv) {
			continue
		}
		if !strings.Contains(argv[x.at], "/") && x.why == "program" {
			if s.Env["PATH"] == "" && !slices.ContainsFunc(Path, func(d string) bool { return exists(filepath.Join(d, argv[0])) }) {
				faults = append(faults, Fault{At: s.CommandAt, Missing: true,
					Text: fmt.Sprintf("the program %s is not on this machine, in %s", argv[0], strings.Join(Path, ", ")),
					Hint: "install it there, or name the program by its path"})
			}
			continue
		}
		file, there, err := m.file(s, argv[x.at], shown)
		switch {
		case err != nil:
			err.Text = fmt.Sprintf("the %s %s", x.why, err.Text)
			faults = append(faults, *err)
		case there != "":
			argv[x.at] = there
			if file != "" {
				more = append(more, Mount{Source: file, Target: there, Why: x.why})
			}
		}
	}
	faults = append(faults, m.arguments(s, argv[1:], append(slices.Clone(shown), more...))...)
	return argv, more, faults
}

// file finds one file of a command. at is its path in the sandbox, "" if the word names no file. source is the file
// to mount there, "" if it is there already.
func (m Machine) file(s contract.Server, word string, shown []Mount) (source, at string, fault *Fault) {
	fail := func(hint, format string, a ...any) (string, string, *Fault) {
		return "", "", &Fault{At: s.CommandAt, Text: fmt.Sprintf(format, a...), Hint: hint}
	}
	path, err := s.At.Beside(word)
	if err != nil {
		return fail("", "%s: %v", word, err)
	}
	if inSandbox(path) {
		if root, _, _ := strings.Cut(path[1:], "/"); !slices.Contains([]string{"usr", "bin", "sbin", "lib"}, root) || exists(path) {
			return "", path, nil
		}
		_, _, f := fail("install it, or name a file that exists", "%s does not exist", path)
		f.Missing = true
		return "", "", f
	}
	for _, x := range shown {
		if !contract.Within(path, x.Target) {
			continue
		}
		if _, err := os.Stat(filepath.Join(x.Source, strings.TrimPrefix(path, x.Target))); err != nil {
			return fail("name a file of that mount", "%s is not in the mount %s", word, x.Target)
		}
		return "", path, nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil && !strings.Contains(word, "/") {
		return "", "", nil // the word is not a file: the interpreter interprets it
	}
	if err != nil {
		_, _, f := fail(fmt.Sprintf("name a file that exists, or show its folder: mounts: {%s: FOLDER}", filepath.Dir(path)),
			"%s does not exist", path)
		f.Missing = true
		return "", "", f
	}
	if info, err := os.Stat(real); err != nil || !info.Mode().IsRegular() {
		return fail(fmt.Sprintf("show a folder by mounts: {%s: %s}", path, path), "%s is not a file", path)
	}
	if why := m.refuse(real); why != "" {
		_, _, f := fail("move it to a folder of its own", "%s %s", path, why)
		f.Refused = true
		return "", "", f
	}
	return real, path, nil
}

// arguments returns the arguments that name something of this machine that the sandbox does not have.
func (m Machine) arguments(s contract.Server, args []string, shown []Mount) (faults []Fault) {
	for _, a := range args {
		if _, value, ok := strings.Cut(a, "="); ok && strings.HasPrefix(a, "-") {
			a = value
		}
		at := filepath.Clean(a)
		if !filepath.IsAbs(a) || at == "/" || inSandbox(at) {
			continue
		}
		real, err := filepath.EvalSymlinks(at)
		if err != nil || slices.ContainsFunc(shown, func(x Mount) bool { return contract.Within(at, x.Target) }) {
			continue
		}
		f := Fault{At: s.CommandAt,
			Text: fmt.Sprintf("the argument %s names a file of this machine that its sandbox does not have", a),
			Hint: fmt.Sprintf("to show it, write mounts: {%s: %s}", at, at)}
		if why := m.refuse(real); why != "" {
			f.Hint = "it cannot be shown, since it " + why
		}
		faults = append(faults, f)
	}
	return faults
}

// Programs returns the files of this machine that the words of a server's command name.
func (m Machine) Programs(s contract.Server) (paths []string) {
	shown, _ := m.mounts(s)
	for i, word := range s.Command {
		if i == 0 && !strings.Contains(word, "/") {
			continue
		}
		path, err := s.At.Beside(word)
		for _, x := range shown {
			if s.Placement != "outside" && contract.Within(path, x.Target) {
				path = filepath.Join(x.Source, strings.TrimPrefix(path, x.Target))
			}
		}
		if info, bad := os.Stat(path); err == nil && bad == nil && info.Mode().IsRegular() {
			paths = append(paths, path)
		}
	}
	return paths
}

// inSandbox reports whether a path belongs to the files of every sandbox.
func inSandbox(at string) bool {
	return slices.ContainsFunc([]string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/dev", "/proc", "/workspace", "/opt/server",
	},
		func(own string) bool { return contract.Within(at, own) }) || at == "/tmp"
}

// tooMuch are the folders that are shown to no sandbox, and those of which nothing below is either.
var tooMuch = []struct {
	path  string
	below bool
	why   string
}{
	{"/", false, "is every file of this machine"},
	{"/home", false, "holds home folders"},
	{"/etc", true, "holds the configuration and the keys of this machine"},
	{"/proc", true, "is the state of this machine's processes"},
	{"/sys", true, "is the state of this machine's kernel"},
	{"/dev", true, "holds devices"},
	{"/run", true, "holds sockets of this machine's services"},
	{"/var/run", true, "holds sockets of this machine's services"},
	{"/var", false, "holds the data of this machine's services"},
	{"/var/lib", false, "holds the data of this machine's services"},
	{"/tmp", false, "holds files and sockets of every program"},
	{"/var/tmp", false, "holds files of every program"},
	{"/boot", true, "holds the kernel of this machine"},
}

// code are folders below a home's dot-folders that hold programs and no credentials.
var code = []string{
	".local/bin", ".local/lib", ".local/share/uv/tools", ".local/share/uv/python", ".local/share/pipx/venvs",
	".local/pipx/venvs", ".nvm/versions", ".volta/tools", ".pyenv/versions", ".rbenv/versions", ".asdf/installs",
	".local/share/mise/installs", ".bun/install/global", ".bun/bin", ".cargo/bin", ".npm-global", ".deno/bin",
}

var userHome = pattern.Lazy(`^/home/[^/]+`)

// refuse says why a path, which holds no link, is shown to no sandbox; "": it may be.
func (m Machine) refuse(at string) string {
	if info, err := os.Stat(at); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return "is neither a folder nor a regular file: a socket, pipe or device connects with programs of this machine"
	}
	for _, x := range tooMuch {
		if at == x.path || x.below && contract.Within(at, x.path) {
			return x.why
		}
	}
	homes := m.Homes
	if h := userHome().FindString(at); h != "" {
		homes = append(slices.Clone(homes), h)
	}
	for _, home := range homes {
		if contract.Within(home, at) {
			return "holds a whole home folder"
		}
		rest, err := filepath.Rel(home, at)
		if err != nil || !strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "..") {
			continue
		}
		if !slices.ContainsFunc(code, func(c string) bool { return contract.Within("/"+rest, "/"+c) }) {
			return "is in a folder of a home that begins with a dot, where programs keep keys and settings"
		}
	}
	if m.State != "" && (contract.Within(m.State, at) || contract.Within(at, m.State)) {
		return "holds waldo's own state"
	}
	return ""
}

var interpreter = pattern.Lazy(`^(?:(python|pypy)[0-9.]*|(node|nodejs)|(deno|bun)|(ruby|perl|php|lua)[0-9.]*` +
	`|(sh|bash|dash|ash|zsh|ksh)|(java))$`)

// valued are options of interpreters whose value is the next word, and ending those after which no script comes.
var (
	valued = []string{
		"-X", "-W", "-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions", "--env-file",
		"-I", "-cp", "-classpath", "--class-path", "-o", "-O", "--config", "--preload",
	}
	ending = []string{"-c", "-m", "-e", "-p", "--eval", "--print", "-s"}
)

// scriptOf returns the index of the word that is an interpreter's script; -1 without one.
func scriptOf(argv []string) int {
	if len(argv) == 0 || !interpreter().MatchString(filepath.Base(argv[0])) {
		return -1
	}
	java := filepath.Base(argv[0]) == "java"
	for i := 1; i < len(argv); i++ {
		a := argv[i]
		switch {
		case java && a == "-jar" && i+1 < len(argv):
			return i + 1
		case slices.Contains(ending, a):
			return -1
		case slices.Contains(valued, a):
			i++
		case a == "--" && i+1 < len(argv):
			return i + 1
		case strings.HasPrefix(a, "-"):
		case a == "run" && slices.Contains([]string{"deno", "bun"}, filepath.Base(argv[0])):
		case java:
			return -1 // the name of a class
		default:
			return i
		}
	}
	return -1
}
