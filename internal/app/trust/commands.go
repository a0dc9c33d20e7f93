package trust

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/app/fault"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/contract"
	"waldo/internal/storage/safefile"
)

// command is a command line of the configuration that waldo runs outside every sandbox.
type command struct {
	what  string // "server x", "secret x" or "approval.notify"
	at    contract.Position
	words []string
	trust string // contract.Uncovered, or empty
}

// commands returns every command line that waldo runs outside every sandbox.
func commands(cfg *contract.Config) (out []command) {
	for _, s := range cfg.Servers {
		if s.Placement == "outside" && len(s.Command) > 0 {
			out = append(out, command{"server " + s.Name, s.CommandAt, s.Command, s.Trust})
		}
	}
	for _, s := range cfg.Secrets {
		if len(s.Spec.Command) > 0 {
			out = append(out, command{"secret " + s.Name, s.At, s.Spec.Command, s.Trust})
		}
	}
	if len(cfg.Approval.Notify) > 0 {
		out = append(out, command{"approval.notify", contract.Position{File: cfg.File, Line: 1, Column: 1},
			cfg.Approval.Notify, cfg.Approval.Trust})
	}
	return out
}

// maxBytes bounds a file that a command names. A larger one cannot be trusted.
const maxBytes = 256 << 20

// folder is the configuration's folder and the digests of the files that commands name.
type folder struct {
	at      contract.Position
	real    string            // the folder without links
	trusted map[string]string // the recorded digests; nil: they are recorded now
	found   map[string]string
}

func openFolder(cfg *contract.Config, trusted map[string]string) (*folder, error) {
	f := &folder{at: contract.Position{File: cfg.File}, trusted: trusted, found: map[string]string{}}
	dir, err := f.at.Beside(".")
	if err == nil {
		f.real, err = filepath.EvalSymlinks(dir)
	}
	return f, err
}

// machines reports a file of this machine's own packages, which its administrator updates: it has no digest.
func (f *folder) machines(real string) bool {
	own := func(dir string) bool { return contract.Within(real, dir) }
	return slices.ContainsFunc([]string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/System"}, own) &&
		!own("/usr/local") && !own(f.real)
}

// self reports waldo's own program, which can be updated without being trusted again.
func self(program string) bool {
	own, err := os.Executable()
	if err != nil {
		return false
	}
	x, err := os.Stat(program)
	y, oerr := os.Stat(own)
	return err == nil && oerr == nil && os.SameFile(x, y)
}

// add records the digest of a regular file. It reads through a link, since what the link leads to can change. A
// trusted file that is gone counts as changed, and a pipe or a device is refused: it has no digest.
func (f *folder) add(path string) error {
	info, err := os.Stat(path)
	switch {
	case f.trusted[path] != "" && (err != nil || !info.Mode().IsRegular()):
		f.found[path] = NoLock
		return nil
	case errors.Is(err, fs.ErrPermission):
		return err // its bytes cannot be compared
	case err != nil || info.IsDir():
		return nil
	case !info.Mode().IsRegular():
		return errSpecial(path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if f.machines(real) || self(real) {
		return nil
	}
	if info.Size() > maxBytes {
		return &fault.Error{Usage: true, Text: fmt.Sprintf("%s has more than %d MiB", path, maxBytes>>20),
			Tip: "place the server in a sandbox, or name a smaller file"}
	}
	f.found[path], err = Digest(path)
	return err
}

// take records the files that the words of a command name.
func (f *folder) take(words []string) error {
	for i, word := range files.Words(f.at, words) {
		if i == 0 {
			if program, err := exec.LookPath(word); err == nil {
				word = program
			}
		} else if _, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(word, "-") {
			word = value
		}
		path, err := f.at.Beside(word)
		if err == nil {
			err = f.add(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errSpecial refuses a path that has no digest.
func errSpecial(path string) error {
	return &fault.Error{Usage: true, Text: path + " is a pipe or a device: its content cannot be held to a digest",
		Tip: "put a file in its place, or keep it outside of the configuration's folder"}
}

// Uncovered returns a problem for each command outside of sandboxes that may load files without a digest, unless its
// line says trust: uncovered. A command loads no other file if its program is waldo itself, or an executable with a
// digest to which nothing links a library, and no word names a folder of the configuration's. Every other one needs
// the line: waldo does not guess what a script, an interpreter or a package runner loads.
func Uncovered(cfg *contract.Config) (out contract.Problems) {
	f, err := openFolder(cfg, nil)
	if err != nil {
		return contract.Problems{{At: contract.Position{File: cfg.File}, Code: "trust.uncovered", Text: err.Error()}}
	}
	for _, c := range commands(cfg) {
		if why := f.loads(c.words); why != "" && c.trust != contract.Uncovered {
			hint := "write trust: uncovered beside it, and read every change of what it loads before you start waldo"
			if strings.HasPrefix(c.what, "server ") {
				hint = "write placement: sandbox; or " + hint
			}
			out = append(out, contract.Problem{At: c.at, Code: "trust.uncovered", Hint: hint,
				Text: c.what + " runs outside of any sandbox, and " + why + ": what it loads has no digest"})
		}
	}
	out.Sort()
	return out
}

// Accepted names the commands whose lines say trust: uncovered.
func Accepted(cfg *contract.Config) (out []string) {
	for _, c := range commands(cfg) {
		if c.trust == contract.Uncovered {
			out = append(out, c.what)
		}
	}
	slices.Sort(out)
	return out
}

// loads returns why a command may load files that its words do not name; "": it cannot.
func (f *folder) loads(words []string) string {
	argv := files.Words(f.at, words)
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return "its program " + words[0] + " is not on this machine"
	}
	real, err := filepath.EvalSymlinks(program)
	switch {
	case err != nil:
		return err.Error()
	case self(real):
	case f.machines(real):
		return words[0] + " is a program of this machine"
	case !static(real):
		return words[0] + " is no static executable"
	}
	for _, word := range argv[1:] {
		if _, value, ok := strings.Cut(word, "="); ok {
			word = value
		}
		if real, err := filepath.EvalSymlinks(word); err == nil && filepath.IsAbs(word) && contract.Within(real, f.real) {
			if info, err := os.Stat(real); err != nil || info.IsDir() {
				return word + " is a folder"
			}
		}
	}
	return ""
}

// static reports an ELF executable without an interpreter and without libraries.
func static(program string) bool {
	b, err := elf.Open(program)
	if err != nil {
		return false
	}
	defer b.Close()
	libraries, err := b.ImportedLibraries()
	return len(libraries) == 0 && (err == nil || errors.Is(err, elf.ErrNoSymbols)) &&
		!slices.ContainsFunc(b.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// Prepare returns a command outside of sandboxes as it is to run, and the empty folder in which it starts. The caller
// removes the folder. A trusted configuration's command runs only with the files that were trusted. The operator
// vouches for a configuration that was named.
func Prepare(state string, cfg *contract.Config, words []string) (argv []string, dir string, err error) {
	if cfg.Programs != nil {
		f, err := openFolder(cfg, cfg.Programs)
		if err == nil {
			err = f.take(words)
		}
		if err == nil {
			err = differs(cfg, f.found)
		}
		if err != nil {
			return nil, "", err
		}
	}
	dir, err = safefile.Scratch(filepath.Join(state, "outside"))
	return files.Words(contract.Position{File: cfg.File}, words), dir, err
}

// differs returns an error for a file that was not trusted as it is now.
func differs(cfg *contract.Config, now map[string]string) error {
	for _, file := range slices.Sorted(maps.Keys(now)) {
		switch {
		case now[file] == NoLock:
			return fmt.Errorf("%s is gone, and was trusted with %s: bring it back, or run: waldo trust %s",
				file, cfg.File, cfg.File)
		case cfg.Programs[file] != now[file]:
			return fmt.Errorf("%s is not the program that was trusted with %s: read it, then run: waldo trust %s",
				file, cfg.File, cfg.File)
		}
	}
	return nil
}
