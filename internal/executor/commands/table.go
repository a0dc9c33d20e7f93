// Package commands judges the commands of a cli capability: a list of arguments, never a line for a shell. A table
// names the programs, and for each the arguments that it takes. Everything else is refused.
package commands

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed programs.txt
var text string

// table is the table of programs and subcommands, by name, such as "ls" and "git status".
var table = sync.OnceValue(func() map[string]*rule {
	t, err := parse(text)
	if err != nil {
		panic("commands: programs.txt: " + err.Error()) // a test reads it
	}
	return t
})

// rule says which arguments a program or subcommand takes.
type rule struct {
	name        string
	danger      int
	operands    string
	least, most int // operands; most -1: any number
	flags       map[string]bool
	values      map[string]bool
	optional    map[string]bool
	paths       map[string]bool
	number      bool // a number is an option, as in -5
	single      bool // long options begin with one "-", as those of Go do
	insert, env []string
	execute     []string // programs that it runs, besides itself
	read        []string // files and folders that it reads, besides its libraries
	any         bool     // it runs code of the project: what it executes and opens is not narrowed
}

// operandKinds are the words behind "operands:".
var operandKinds = []string{"path", "pattern", "text", "words", "none", "plus", "rev", "name", "find", "sed"}

// parse reads a table.
func parse(text string) (map[string]*rule, error) {
	all := map[string]*rule{}
	var r *rule
	for n, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, rest, ok := strings.Cut(line, ":")
		words := strings.Fields(rest)
		switch {
		case !ok || len(words) == 0:
			return nil, fmt.Errorf("line %d: want key: words", n+1)
		case key == "program" || key == "command":
			r = &rule{name: strings.Join(words, " "), danger: 1, most: -1, flags: map[string]bool{}, values: map[string]bool{},
				optional: map[string]bool{}, paths: map[string]bool{}, single: words[0] == "go"}
			if all[r.name] != nil || (key == "program") != (len(words) == 1) {
				return nil, fmt.Errorf("line %d: %s stands twice, or is no %s", n+1, r.name, key)
			}
			all[r.name] = r
			continue
		case r == nil:
			return nil, fmt.Errorf("line %d: no program before it", n+1)
		}
		if err := r.set(key, words); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	return all, nil
}

func (r *rule) set(key string, words []string) (err error) {
	number := func(to *int) {
		if *to, err = strconv.Atoi(words[0]); err == nil && (*to < 0 || *to > 3) {
			err = fmt.Errorf("%s: 0 to 3", key)
		}
	}
	options := func(set map[string]bool) {
		for _, w := range words {
			switch {
			case w == "-0..9":
				r.number = true
			case strings.HasPrefix(w, "--") || r.single:
				set[w] = true
			case strings.HasPrefix(w, "-"):
				for _, c := range w[1:] {
					set["-"+string(c)] = true
				}
			default:
				err = fmt.Errorf("%q is not an option", w)
			}
		}
	}
	switch key {
	case "danger":
		number(&r.danger)
	case "least":
		number(&r.least)
	case "most":
		number(&r.most)
	case "operands":
		if r.operands = words[0]; !slices.Contains(operandKinds, r.operands) {
			err = fmt.Errorf("unknown operands %q", r.operands)
		}
	case "flags":
		options(r.flags)
	case "values":
		options(r.values)
	case "optional":
		options(r.optional)
	case "paths":
		options(r.paths)
	case "insert":
		r.insert = words
	case "env":
		r.env = words
	case "execute":
		r.execute, err = words, absolute(words)
	case "read":
		r.read, err = words, absolute(words)
	case "runs":
		if r.any = words[0] == "any"; !r.any {
			err = fmt.Errorf("runs: %q: want any", words[0])
		}
	default:
		err = fmt.Errorf("unknown key %q", key)
	}
	return err
}

func absolute(words []string) error {
	for _, w := range words {
		if !strings.HasPrefix(w, "/") {
			return fmt.Errorf("%q is not an absolute path", w)
		}
	}
	return nil
}
