// Package secretsource fetches secrets from where the operator keeps them: waldo's environment, files
// plain and sealed, the keyring of the session, Vault, a command, waldo's own store. It reads and
// never writes, and no error shows a secret. A Keeper holds them and keeps them fresh.
package secretsource

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"waldo/internal/model/secret"
)

// maxFile is the largest file read and the longest answer taken, in bytes.
const maxFile = 64 << 10

// Why a secret could not be had. Each is wrapped in an error that names the Ref.
var (
	ErrMissing = errors.New("it is not there")
	ErrEmpty   = errors.New("it is empty")
	ErrUnsafe  = errors.New("others could read or change it")
	ErrTooBig  = errors.New("it is larger than 64 KiB")
	ErrForm    = errors.New("want " + secret.Forms)
	ErrBytes   = errors.New("it holds a NUL byte")
	ErrClosed  = errors.New("this source is not open here")
	ErrSealed  = errors.New("it could not be opened with the identity or passphrase given")
)

// Sources says where secrets may come from. The zero value has none.
type Sources struct {
	Env      func(name string) (string, bool)              // such as os.LookupEnv; nil: no environment
	Files    bool                                          // whether file:, dotenv: and age: are read
	Keyring  func(service, account string) (string, error) // such as Keyring; nil: none
	Vault    *Vault                                        // nil: none
	Stored   func(name string) (secret.Value, error)       // waldo's own store; nil: none
	Commands bool                                          // whether commands are run
	// Prepare gives the command as it is to run and an empty folder to start in, or refuses it; nil: as it is.
	Prepare    func(command []string) (argv []string, dir string, err error)
	Identity   string                                  // a file of age identities, read as a private file; "": none
	Passphrase func(what string) (secret.Value, error) // asks the person at the terminal; nil: no terminal
}

// fetched is a secret as it came from its source.
type fetched struct {
	value secret.Value
	lasts time.Duration // fetch again after this; 0: it does not change while waldo runs
	stamp string        // of the file it came from; "": no file
}

// How long a value is used whose source says nothing of it.
const (
	vaultLasts   = 5 * time.Minute
	commandLasts = 5 * time.Minute
	keyringLasts = time.Minute
	storeLasts   = time.Second
)

// fetchPatience is how long one source is waited for.
const fetchPatience = 15 * time.Second

// Resolve fetches the secret that ref names. One newline at the end of a file is not part of the
// secret. An empty secret is refused, as is one with a NUL byte, which no environment or header can
// carry.
func (s Sources) Resolve(ref secret.Ref) (secret.Value, error) {
	got, err := s.fetch(ref, secret.Spec{From: ref})
	return got.value, err
}

// fetch gets what a specification says, for the secret of a name that may be shown.
func (s Sources) fetch(name secret.Ref, spec secret.Spec) (fetched, error) {
	var got fetched
	var err error
	where := "a command"
	switch p, ok := spec.From.Place(); {
	case len(spec.Command) > 0:
		got, err = s.fromCommand(spec)
		where += " (" + spec.Command[0] + ")"
	case spec.From == "" && name != "":
		return fetched{}, fmt.Errorf("secret %s: %w: no place is given for it in this environment", name, ErrMissing)
	case !ok: // it may be a secret pasted where its name belongs
		return fetched{}, fmt.Errorf("a secret whose name is not shown: %w", ErrForm)
	default:
		where = s.where(p)
		got, err = s.from(p)
	}
	if err == nil {
		err = usable(got.value)
	}
	if err != nil {
		return fetched{}, fmt.Errorf("secret %s: %w: looked in %s", name, err, where)
	}
	if spec.Refresh > 0 {
		got.lasts = spec.Refresh
	}
	return got, nil
}

// where says in words where a place is looked for.
func (s Sources) where(p secret.Place) string {
	switch p.Kind {
	case "env":
		return "the environment of waldo, variable " + p.Name
	case "keyring":
		return "the keyring of the session, service " + p.Path + ", account " + p.Name
	case "vault":
		if s.Vault == nil {
			return "Vault"
		}
		return "Vault at " + s.Vault.host() + ", " + p.Path + ", field " + p.Name
	case "store":
		return "waldo's store, " + p.Name
	}
	if p.Name == "" {
		return "the file " + p.Path
	}
	return "the file " + p.Path + ", variable " + p.Name
}

func (s Sources) from(p secret.Place) (fetched, error) {
	switch p.Kind {
	case "env":
		return s.fromEnv(p.Name)
	case "file", "dotenv", "age":
		return s.fromFile(p)
	case "keyring":
		return s.fromKeyring(p)
	case "vault":
		return s.fromVault(p)
	case "store":
		if s.Stored == nil {
			return fetched{}, ErrClosed
		}
		v, err := s.Stored(p.Name)
		return fetched{value: v, lasts: storeLasts}, err
	}
	return fetched{}, ErrForm
}

func (s Sources) fromEnv(name string) (fetched, error) {
	if s.Env == nil {
		return fetched{}, ErrClosed
	}
	v, ok := s.Env(name)
	if !ok {
		return fetched{}, ErrMissing
	}
	return fetched{value: secret.NewValue(v)}, nil
}

// fromFile reads a file that holds one secret, or variables, sealed or not. A sealed one may be
// read by others, and like the rest may not be changed by them.
func (s Sources) fromFile(p secret.Place) (fetched, error) {
	if !s.Files {
		return fetched{}, ErrClosed
	}
	mask := onlyMine
	if p.Kind == "age" {
		mask = mineToChange
	}
	b, stamp, err := readPrivate(p.Path, mask)
	if err == nil && p.Kind == "age" {
		b, err = s.unseal(p.Path, b)
	}
	if err != nil {
		return fetched{}, err
	}
	got := fetched{stamp: stamp}
	if p.Name == "" {
		got.value = secret.NewValue(string(oneLineLess(b)))
		return got, nil
	}
	all, err := ParseEnv(b)
	if err != nil {
		return fetched{}, err
	}
	v, ok := all[p.Name]
	if !ok {
		return fetched{}, ErrMissing
	}
	got.value = v
	return got, nil
}

// ReadPrivate reads a regular file of at most 64 KiB that belongs to this user or root, and that no other user can
// read or change.
func ReadPrivate(path string) ([]byte, error) {
	b, _, err := readPrivate(path, onlyMine)
	return b, err
}

// oneLineLess takes one newline off the end.
func oneLineLess(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte("\n"))
	return bytes.TrimSuffix(b, []byte("\r"))
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
