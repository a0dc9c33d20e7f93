package secret

import (
	"path/filepath"
	"strings"
	"time"
)

// Ref names a secret: its place, such as "env:GITHUB_TOKEN", or its name in the configuration or in waldo's own
// store, such as "github". It is safe to print.
type Ref string

// Place is a parsed Ref. Its zero value refers to nothing.
type Place struct {
	Kind string // env, file, dotenv, age, keyring, vault or store
	Path string // of a file, a service of the keyring, or in Vault; "" with env and store
	Name string // the variable, the account, the field, or the name; "" for the whole file
}

// Forms says what a Ref may look like, for errors.
const Forms = "env:VARIABLE, file:/PATH, dotenv:/PATH#VARIABLE, age:/PATH, age:/PATH#VARIABLE, " +
	"keyring:SERVICE/ACCOUNT, vault:PATH#FIELD or store:NAME"

// Place takes a Ref apart. It is false for one that is only a name and for one that is malformed:
// paths of files are absolute and clean, names hold letters, digits and few signs, nothing is
// longer than 512 bytes.
func (r Ref) Place() (Place, bool) {
	kind, rest, ok := strings.Cut(string(r), ":")
	if !ok || len(rest) > 512 {
		return Place{}, false
	}
	p := Place{Kind: kind, Path: rest}
	switch kind {
	case "env":
		return Place{kind, "", rest}, Variable(rest)
	case "store":
		return Place{kind, "", rest}, Name(rest)
	case "file":
		return p, plainPath(rest)
	case "dotenv":
		p.Path, p.Name, _ = cutLast(rest, "#")
		return p, plainPath(p.Path) && Variable(p.Name)
	case "age":
		if path, name, ok := cutLast(rest, "#"); ok {
			p.Path, p.Name = path, name
			return p, plainPath(path) && Variable(name)
		}
		return p, plainPath(rest)
	case "keyring":
		p.Path, p.Name, ok = strings.Cut(rest, "/")
		return p, ok && spelled(p.Path, "_.-@:", 128) && spelled(p.Name, "_.-@:/+", 128)
	case "vault":
		p.Path, p.Name, ok = cutLast(rest, "#")
		return p, ok && vaultPath(p.Path) && spelled(p.Name, "_.-", 128)
	}
	return Place{}, false
}

// Name reports whether s can be the name of a secret: at most 63 letters, digits, '_', '.' and '-',
// a letter first.
func Name(s string) bool {
	return spelled(s, "_.-", 63) && (s[0]|0x20 >= 'a' && s[0]|0x20 <= 'z')
}

// Variable reports whether s can name an environment variable: at most 128 bytes of ASCII letters,
// digits and '_', no digit first (POSIX.1-2017 §8.1, with lower case allowed).
func Variable(s string) bool {
	return spelled(s, "_", 128) && (s[0] < '0' || s[0] > '9')
}

// spelled reports whether s is 1 to most letters, digits and others of ASCII.
func spelled(s, others string, most int) bool {
	for i := range len(s) {
		c := s[i]
		if l := c | 0x20; (l < 'a' || l > 'z') && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return s != "" && len(s) <= most
}

// vaultPath reports whether s names a secret in Vault: parts between slashes, none empty and none
// of dots alone, so that no other part of Vault's interface is reached.
func vaultPath(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if !spelled(part, "_.-@+", 128) || strings.Trim(part, ".") == "" {
			return false
		}
	}
	return strings.Contains(s, "/")
}

// plainPath reports whether s is an absolute, clean path of printable ASCII.
func plainPath(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return filepath.IsAbs(s) && filepath.Clean(s) == s
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// Spec is the source of a configured secret: a place, or the output of a command. The zero Spec has no source.
type Spec struct {
	From    Ref
	Command []string      // the program and its arguments; no shell
	Timeout time.Duration // for the command; 0: 10 s
	Refresh time.Duration // how long a value is used before it is fetched again; 0: the source's default
}
