// Package source fetches secrets from where the operator keeps them: waldo's environment, a file
// that holds one secret, a .env file. It reads and never writes, and no error shows a secret.
package source

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"waldo/internal/secret"
)

// maxFile is the largest file read, in bytes.
const maxFile = 64 << 10

// Why a secret could not be had. Each is wrapped in an error that names the Ref.
var (
	ErrMissing = errors.New("it is not there")
	ErrEmpty   = errors.New("it is empty")
	ErrUnsafe  = errors.New("others could read or change it")
	ErrTooBig  = errors.New("it is larger than 64 KiB")
	ErrForm    = errors.New("want env:VARIABLE, file:/PATH or dotenv:/PATH#VARIABLE")
	ErrBytes   = errors.New("it holds a NUL byte")
)

// Sources says where secrets may come from. The zero value has none.
type Sources struct {
	Env   func(name string) (string, bool) // such as os.LookupEnv; nil: no environment
	Files bool                             // whether file: and dotenv: are read
}

// Resolve fetches the secret that ref names: env:VARIABLE, file:/PATH or dotenv:/PATH#VARIABLE.
// A path is absolute and clean. One newline at the end of a file is not part of the secret.
// An empty secret is refused, as is one with a NUL byte, which no environment or header can carry.
func (s Sources) Resolve(ref secret.Ref) (secret.Value, error) {
	r, ok := split(ref)
	if !ok { // it may be a secret pasted where its name belongs
		return secret.Value{}, fmt.Errorf("a secret whose name is not shown: %w", ErrForm)
	}
	v, err := s.fetch(r)
	if err == nil {
		err = usable(v)
	}
	if err != nil {
		return secret.Value{}, fmt.Errorf("secret %s: %w", ref, err)
	}
	return v, nil
}

// parts are a Ref taken apart: a path, a variable, or both.
type parts struct{ scheme, path, name string }

func split(ref secret.Ref) (parts, bool) {
	scheme, rest, _ := strings.Cut(string(ref), ":")
	switch scheme {
	case "env":
		return parts{scheme, "", rest}, variable(rest)
	case "file":
		return parts{scheme, rest, ""}, plainPath(rest)
	case "dotenv":
		path, name, _ := cutLast(rest, "#")
		return parts{scheme, path, name}, plainPath(path) && variable(name)
	}
	return parts{}, false
}

func (s Sources) fetch(r parts) (secret.Value, error) {
	switch r.scheme {
	case "env":
		return s.fromEnv(r.name)
	case "file":
		return s.fromFile(r.path)
	case "dotenv":
		return s.fromDotenv(r.path, r.name)
	}
	return secret.Value{}, ErrForm
}

func (s Sources) fromEnv(name string) (secret.Value, error) {
	if s.Env == nil {
		return secret.Value{}, ErrMissing
	}
	v, ok := s.Env(name)
	if !ok {
		return secret.Value{}, ErrMissing
	}
	return secret.NewValue(v), nil
}

func (s Sources) fromFile(path string) (secret.Value, error) {
	b, err := s.read(path)
	if err != nil {
		return secret.Value{}, err
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	return secret.NewValue(string(bytes.TrimSuffix(b, []byte("\r")))), nil
}

func (s Sources) fromDotenv(path, name string) (secret.Value, error) {
	b, err := s.read(path)
	if err != nil {
		return secret.Value{}, err
	}
	all, err := ParseEnv(b)
	if err != nil {
		return secret.Value{}, err
	}
	v, ok := all[name]
	if !ok {
		return secret.Value{}, ErrMissing
	}
	return v, nil
}

func (s Sources) read(path string) ([]byte, error) {
	if !s.Files {
		return nil, ErrMissing
	}
	return readPrivate(path)
}

func usable(v secret.Value) error {
	switch {
	case v.Reveal() == "":
		return ErrEmpty
	case strings.Contains(v.Reveal(), "\x00"):
		return ErrBytes
	}
	return nil
}

// variable reports whether s can name an environment variable: at most 128 bytes of ASCII letters,
// digits and '_', no digit first (POSIX.1-2017 §8.1, with lower case allowed).
func variable(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// plainPath reports whether s is an absolute, clean path of printable ASCII.
func plainPath(s string) bool {
	for _, c := range []byte(s) {
		if c < 0x20 || c > 0x7e {
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
