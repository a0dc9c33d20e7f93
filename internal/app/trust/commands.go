package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"waldo/internal/app/fault"
	"waldo/internal/model/contract"
)

// command is a command line of the configuration that waldo runs outside every sandbox.
type command struct {
	what  string // "server x", "secret x" or "approval.notify"
	at    contract.Position
	words []string
	env   map[string]string // the variables that the configuration gives it
}

// commands returns every command line that waldo runs outside every sandbox.
func commands(cfg *contract.Config) (out []command) {
	for _, s := range cfg.Servers {
		if s.Placement == "outside" && len(s.Command) > 0 {
			out = append(out, command{"server " + s.Name, s.CommandAt, s.Command, s.Env})
		}
	}
	for _, s := range cfg.Secrets {
		if len(s.Spec.Command) > 0 {
			out = append(out, command{"secret " + s.Name, s.At, s.Spec.Command, nil})
		}
	}
	if len(cfg.Approval.Notify) > 0 {
		out = append(out, command{"approval.notify", contract.Position{File: cfg.File}, cfg.Approval.Notify, nil})
	}
	return out
}

// The bounds of one configuration. Beyond them it cannot be trusted.
const (
	maxFiles  = 1000
	maxBytes  = 256 << 20
	maxPieces = 2000   // of one command
	maxPlaces = 50_000 // of these in the folders to look in
)

// endings complete a word to the file that an interpreter finds by it: a module or the entry of a folder.
var endings = []string{
	"", ".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb", ".pl",
	"/__main__.py", "/__init__.py", "/index.js", "/index.mjs", "/index.cjs", "/package.json",
}

// folder is the configuration's folder and the files found there.
type folder struct {
	dir, real string            // real has no links
	here      string            // the working folder if it is another, otherwise empty: commands start in it
	trusted   map[string]string // the recorded digests; nil: they are recorded now
	found     map[string]string
	bytes     int64
	lines     []string // the "#!" lines of the files that a command names
}

func openFolder(cfg *contract.Config, trusted map[string]string) (*folder, error) {
	f := &folder{trusted: trusted, found: map[string]string{}}
	var err error
	if f.dir, err = filepath.Abs(filepath.Dir(cfg.File)); err != nil {
		return nil, err
	}
	if f.real, err = filepath.EvalSymlinks(f.dir); err != nil {
		return nil, err
	}
	if f.here, err = os.Getwd(); f.here == f.dir || f.here == f.real {
		f.here = ""
	}
	return f, err
}

// holds reports whether a path is in the folder, by its name or by where its links lead.
func (f *folder) holds(path string) bool {
	if clean := filepath.Clean(path); contract.Within(clean, f.dir) || contract.Within(clean, f.real) {
		return true
	}
	behind, err := filepath.EvalSymlinks(path)
	return err == nil && contract.Within(behind, f.real)
}

// add records the digest of a file. It reads through a link, since what the link leads to can change.
func (f *folder) add(path string) error {
	if f.found[path] != "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if f.bytes += info.Size(); f.bytes > maxBytes || len(f.found) >= maxFiles {
		return &fault.Error{Usage: true,
			Text: fmt.Sprintf("the programs of %s are more than %d files or %d MiB", f.dir, maxFiles, maxBytes>>20),
			Tip:  "name fewer files in the commands that run outside of sandboxes, or place those servers in a sandbox"}
	}
	f.found[path], err = Digest(path)
	return err
}

// takeWords records the files that a command's words name in the folder, or below the working folder.
func (f *folder) takeWords(c command) error {
	words := pieces(c)
	for _, word := range slices.Clone(words) {
		words = append(words, clustered(word)...)
	}
	if len(words) > maxPieces {
		return &fault.Error{Usage: true, Text: fmt.Sprintf("the command of %s has more than %d words", c.what, maxPieces),
			Tip: "put it into a script of its own"}
	}
	bases := f.bases(words)
	if len(words)*len(bases) > maxPlaces {
		return &fault.Error{Usage: true, Text: fmt.Sprintf("the command of %s names %d folders in %d words", c.what,
			len(bases), len(words)), Tip: "put it into a script of its own"}
	}
	for i, word := range words {
		if err := f.searched(word); err != nil {
			return err
		}
		for _, base := range bases {
			if err := f.named(base, word); err != nil {
				return err
			}
			if i > 0 && moduleFlag.MatchString(words[i-1]) || i+1 < len(words) && words[i+1] == "-m"+word {
				if top, _, _ := strings.Cut(word, "."); top != "" {
					if err := f.tree(at(base, top)); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// searched records the program that PATH finds for a word, if it is in the folder.
func (f *folder) searched(word string) error {
	if strings.Contains(word, "/") {
		return nil
	}
	file, err := exec.LookPath(word)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return nil // waldo finds none either
	}
	if file, err = filepath.Abs(file); err == nil && f.holds(file) {
		if err = f.add(file); err == nil {
			err = f.follow(file)
		}
	}
	return err
}

// moduleFlag matches the option of Python that takes a module, alone or behind others.
var moduleFlag = regexp.MustCompile(`^-[A-Za-z]*m$`)

// bases returns the folders in which a command can look for files: the configuration's, the working one, and those in
// the folder that its words name.
func (f *folder) bases(words []string) []string {
	out := []string{f.dir}
	if f.here != "" {
		out = append(out, f.here)
	}
	for _, word := range words {
		for _, base := range out[:min(len(out), 2)] {
			dir := at(base, word)
			if info, err := os.Stat(dir); err == nil && info.IsDir() && f.holds(dir) && !slices.Contains(out, dir) {
				out = append(out, dir)
			}
		}
	}
	return out
}

// at is the path of a word in a folder. It leaves dir/.. as it is, since dir can become a link to elsewhere.
func at(base, word string) string {
	if !filepath.IsAbs(word) {
		word = base + string(filepath.Separator) + word
	}
	if strings.Contains(word, "..") {
		return word
	}
	return filepath.Clean(word)
}

// named records each regular file that a word can mean in a folder. A file of a foreign working folder counts too: a
// command starts there, and it was not trusted. A trusted file that is gone counts as changed: the command can take
// another in its place. Interpreters also take code from pipes and devices, which have no digest.
func (f *folder) named(base, word string) error {
	for _, name := range []string{word, strings.ReplaceAll(word, ".", "/")} {
		if name == "" || name != word && strings.Contains(word, "/") || filepath.IsAbs(name) && base != f.dir {
			continue
		}
		for _, end := range endings {
			path := at(base, name+end)
			if !f.holds(path) && (filepath.IsAbs(name) || base != f.here) {
				continue
			}
			found, err := f.file(path)
			if err == nil && found {
				err = f.follow(path)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// file records a regular file if there is one. It refuses what has no digest.
func (f *folder) file(path string) (found bool, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return false, err // its bytes cannot be compared
	case err == nil && info.Mode().IsRegular():
		return true, f.add(path)
	case f.trusted[path] != "":
		f.found[path] = NoLock
	case err == nil && !info.IsDir() && info.Mode()&fs.ModeSocket == 0:
		return false, errSpecial(path)
	}
	return false, nil
}

// errSpecial refuses a path that has no digest.
func errSpecial(path string) error {
	return &fault.Error{Usage: true, Text: path + " is a pipe or a device: its content cannot be held to a digest",
		Tip: "put a file in its place, or keep it outside of the configuration's folder"}
}

// tree records every file of a package that is run by its name, less what Python compiles there itself.
func (f *folder) tree(dir string) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() || !f.holds(dir) {
		return nil
	}
	if strings.Contains(dir, "..") { // WalkDir takes dir/.. away
		var err error
		if dir, err = filepath.EvalSymlinks(dir); err != nil {
			return err
		}
	}
	return filepath.WalkDir(dir+"/.", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && e.Name() == "__pycache__":
			return fs.SkipDir
		case e.IsDir():
			return nil
		}
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // a link to nothing
			return nil
		case err != nil:
			return err
		case info.IsDir():
			return &fault.Error{Usage: true, Text: path + " is a link to a folder: it can lead a package to any code",
				Tip: "put the folder itself there"}
		case info.Mode().IsRegular():
			return f.add(path)
		}
		return nil
	})
}

// pieces returns the words of a command, and the parts of them that can name a file: as in --file=./x, -r./x,
// PATH=./a:./b or sh -c "exec ./x".
func pieces(c command) (out []string) {
	words := slices.Clone(c.words)
	for _, v := range c.env {
		words = append(words, v)
	}
	add := func(word string) {
		if word == "" {
			return
		}
		if len(word) > 2 && word[0] == '-' && word[1] != '-' {
			out = append(out, word[2:])
		}
		out = append(out, word) // last, so that a module follows its option
	}
	for _, word := range words {
		add(word)
		for _, cut := range []string{"'\"=", " \t\r\n;&|<>()'\"`$={}[],:@+!"} {
			if parts := strings.FieldsFunc(word, func(r rune) bool { return strings.ContainsRune(cut, r) }); len(parts) != 1 ||
				parts[0] != word {
				for _, p := range parts {
					add(p)
				}
			}
		}
	}
	return out
}

// indirect matches words of programs that run code of the folder which their command does not name, and of options
// that take code or a module.
var indirect = regexp.MustCompile(`^(npm|npx|pnpm|pnpx|yarn|bun|bunx|deno|make|gmake|cmake|ninja|just|task|rake|` +
	`bundle|tox|nox|poetry|pipenv|pipx|uv|uvx|hatch|pdm|rye|pixi|pytest|flask|uvicorn|gunicorn|hypercorn|celery|` +
	`cargo|go|gradle|gradlew|mvn|mvnw|ant|sbt|mix|swift|dotnet|nix|nix-shell|direnv|mise|git|hg|` +
	`docker|docker-compose|podman|ssh|Rscript|R|terraform|tofu|terragrunt|pulumi|bazel|bazelisk|sops|` +
	`ansible|ansible-playbook|vagrant|meson|pre-commit|` +
	`-[A-Za-z]*[cem]|-[A-Za-z]?[cem].*|-p|--eval|--print|--import|--require|--loader|-[rIM].*)$`)

// Uncovered returns what no digest covers: commands outside of sandboxes that find code of the folder by themselves.
func Uncovered(cfg *contract.Config) (out contract.Problems) {
	f, err := openFolder(cfg, nil)
	if err != nil {
		return nil
	}
	for _, c := range commands(cfg) {
		why := ""
		for _, word := range pieces(c) {
			if indirect.MatchString(filepath.Base(word)) && (why == "" || !strings.HasPrefix(word, "-")) ||
				why == "" && f.hasFolder(word) {
				why = word
			}
		}
		f.found = map[string]string{}
		if f.take(c) == nil { // otherwise there is no trust
			for _, word := range lineWords(f.lines) {
				if word = filepath.Base(word); why == "" && word[0] != '-' && indirect.MatchString(word) {
					why = word
				}
			}
		}
		for file := range f.found {
			if filepath.Base(file) == pyvenv {
				out = append(out, contract.Problem{At: c.at, Code: "trust.packages",
					Hint: "read changes of its packages before you start waldo",
					Text: fmt.Sprintf("%s runs outside of any sandbox in the virtual environment %s: "+
						"its packages and .pth files are not covered by this trust", c.what, filepath.Dir(file))})
			}
		}
		if why == "" {
			continue
		}
		hint := "name its files in the command; read changes before you start waldo"
		if strings.HasPrefix(c.what, "server ") {
			hint = "name its files in the command, or place the server in a sandbox; read changes before you start waldo"
		}
		out = append(out, contract.Problem{At: c.at, Code: "trust.uncovered", Hint: hint,
			Text: fmt.Sprintf("%s runs outside of any sandbox with %q: what that loads from %s is not covered by this trust",
				c.what, why, f.dir)})
	}
	out.Sort()
	return out
}

// hasFolder reports whether a word names a folder in the configuration's, and not a program of this machine.
func (f *folder) hasFolder(word string) bool {
	if _, err := exec.LookPath(word); err == nil && !strings.Contains(word, "/") {
		return false
	}
	dir := at(f.dir, word)
	info, err := os.Stat(dir)
	return err == nil && info.IsDir() && f.holds(dir)
}

// UnchangedCommand returns an error if a command that runs outside of sandboxes names a file that is not the trusted
// one. The operator vouches for a configuration that was named.
func UnchangedCommand(state string, cfg *contract.Config, words []string) error {
	if !cfg.Found {
		return nil
	}
	trusted, err := TrustedPrograms(state, cfg)
	if err != nil {
		return err
	}
	f, err := openFolder(cfg, trusted)
	if err != nil {
		return err
	}
	if err := f.take(command{what: words[0], words: words}); err != nil {
		return err
	}
	return differs(cfg, f.found, trusted)
}

// differs returns an error for a file that was not trusted as it is now.
func differs(cfg *contract.Config, now, trusted map[string]string) error {
	for _, file := range slices.Sorted(maps.Keys(now)) {
		switch {
		case now[file] == NoLock:
			return fmt.Errorf("%s is gone, and was trusted with %s: bring it back, or run: waldo trust %s",
				file, cfg.File, cfg.File)
		case trusted[file] != now[file]:
			return fmt.Errorf("%s is not the program that was trusted with %s: read it, then run: waldo trust %s",
				file, cfg.File, cfg.File)
		}
	}
	return nil
}
