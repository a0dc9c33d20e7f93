// Package guest holds what runs inside a sandbox beside a script: the Python and JavaScript runtimes, embedded.
// They are trusted with nothing. Script and runtime enter through stdin, so a run writes no file of the host
// and leaves none behind.
package guest

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// MaxScript is how many bytes a script may have.
const MaxScript = 1 << 20

// Lang is the language of a script.
type Lang string

// The languages that have a runtime.
const (
	Python     Lang = "python"
	JavaScript Lang = "javascript"
	TypeScript Lang = "typescript"
)

//go:embed python/boot.py
var pythonBoot string

//go:embed python/zygote.py
var pythonZygote string

//go:embed python/wasi.py
var pythonWASI string

//go:embed python/waldo.py
var pythonLibrary string

//go:embed python/show.py
var pythonShow string

// pythonRuntime is the library of a script.
var pythonRuntime = pythonLibrary + "\n\n" + pythonShow

//go:embed javascript/boot.js
var nodeBoot string

//go:embed javascript/waldo.js
var nodeRuntime string

//go:embed javascript/strip.min.js
var nodeStrip string

// Script is a script as it was given.
type Script struct {
	Lang    Lang
	Name    string   // shown in its errors; empty: a name for the language
	Code    []byte   // UTF-8
	Args    []string // after its name in argv
	Servers []string // the servers whose names are globals, as the catalogue calls them
}

// Start is an interpreter of a language before it knows its script. Warm makes it ready for one: it
// does before the script is there what it would do once.
type Start struct {
	Lang Lang
	Warm bool
}

// node are the arguments of Node. A sandbox has one processor, for which one thread of V8's own beside the
// script's is enough.
var node = []string{"--no-warnings", "--experimental-vm-modules", "--v8-pool-size=1", "-e", nodeBoot}

// Command returns the arguments of the interpreter, without the interpreter itself, and the text that its stdin
// must begin with. A Script's Job follows.
func (s Start) Command() (argv []string, head string, err error) {
	runtime := []string{nodeRuntime}
	switch s.Lang {
	case Python:
		argv, runtime = []string{"-I", "-S", "-c", pythonBoot}, []string{pythonRuntime}
	case JavaScript:
		argv = append(argv, node...)
	case TypeScript:
		argv = append(append(argv, node...), "typescript")
		runtime = append(runtime, nodeStrip)
	default:
		return nil, "", fmt.Errorf("language %q: there are python, javascript and typescript", s.Lang)
	}
	return argv, s.head(runtime...), nil
}

// start is the last line of boot.py.
const start = "_main()"

// WASI returns the arguments of a Python that is WebAssembly, and the text that its stdin must begin with. The byte "\n"
// and a Script's Job follow.
func WASI() (argv []string, head string, err error) {
	boot, ok := strings.CutSuffix(strings.TrimRight(pythonBoot, "\n"), start)
	if !ok {
		return nil, "", errors.New("boot.py does not end with its start")
	}
	head = Start{Lang: Python}.head(pythonRuntime)
	return []string{"-I", "-S", "-X", "utf8", "-c", boot + pythonWASI + start}, strings.TrimSuffix(head, "\n"), nil
}

// heads holds the heads that were made, one string each: comparing a string with itself does not read it.
var heads sync.Map

func (s Start) head(runtime ...string) string {
	if h, ok := heads.Load(s); ok {
		return h.(string)
	}
	warm := 0
	if s.Warm {
		warm = 1
	}
	// The last byte is read when the interpreter is ready, so that waldo sees when that is.
	all := strings.Join(runtime, "\x00")
	h, _ := heads.LoadOrStore(s, fmt.Sprintf("%d %11d\n", warm, len(all))+all+"\n")
	return h.(string)
}

var pythonFork = fmt.Sprintf("2 %11d\n", len(pythonRuntime)) + pythonRuntime +
	fmt.Sprintf("%11d\n", len(pythonZygote)) + pythonZygote

// Zygote returns what the stdin of the interpreter must begin with where sandboxes are to be forked from it;
// the machine that forks them follows. Empty: the language has no such interpreter.
func (s Start) Zygote() string {
	if s.Lang != Python {
		return ""
	}
	return pythonFork
}

// names are those of scripts that were given none.
var names = map[Lang]string{Python: "script.py", JavaScript: "script.js", TypeScript: "script.ts"}

// pythonFirst is how much of its job Python reads at once, in bytes; a shorter one is filled up with NULs.
const pythonFirst = 1024

// Job returns what follows the head on the interpreter's stdin; the input of the script follows it.
// It refuses a script of more than MaxScript bytes, and words that no program can be given.
func (s Script) Job() (*strings.Reader, error) {
	if len(s.Code) > MaxScript {
		return nil, fmt.Errorf("the script has %d bytes: at most %d run", len(s.Code), MaxScript)
	}
	if s.Name == "" {
		s.Name = names[s.Lang]
	}
	words := append([]string{s.Name, strings.Join(Identifiers(s.Servers), ",")}, s.Args...)
	for _, w := range words {
		if strings.ContainsRune(w, 0) || !utf8.ValidString(w) {
			return nil, fmt.Errorf("the argument %q holds a NUL or is not UTF-8", w)
		}
	}
	all := strings.Join(words, "\x00")
	// In one piece, so that the interpreter that waits for it is woken once. Python reads so much first.
	job := fmt.Sprintf("%11d %11d\n%s%s", len(all), len(s.Code), all, s.Code)
	if short := pythonFirst - len(job); s.Lang == Python && short > 0 {
		job += strings.Repeat("\x00", short)
	}
	return strings.NewReader(job), nil
}

// Command returns the arguments of the interpreter for s, without the interpreter itself, and the head of its
// stdin: the head of a Start that is not warm, and the Job.
func (s Script) Command() (argv []string, head io.Reader, err error) {
	argv, first, err := Start{Lang: s.Lang}.Command()
	if err != nil {
		return nil, nil, err
	}
	job, err := s.Job()
	if err != nil {
		return nil, nil, err
	}
	return argv, Stdin(first, job, nil), nil
}

// Identifiers keeps the names that can be globals: letters, digits and _, with - and . spelled _.
func Identifiers(names []string) []string {
	var out []string
	for _, n := range names {
		n = strings.NewReplacer("-", "_", ".", "_").Replace(n)
		ok := n != "" && (n[0] < '0' || n[0] > '9')
		for _, c := range n {
			ok = ok && (c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z')
		}
		if ok {
			out = append(out, n)
		}
	}
	return out
}

// JavaScriptRuntime is the library of a script as source text: a function of Node's require. The level engine gives it
// a require of its own.
func JavaScriptRuntime() string { return nodeRuntime }
