// Package programs stores suspended programs: each is a sealed file below the state directory or, for replicas, a
// sealed row that each of them can take. A program goes on at most once. It is taken before it runs, so that a waldo
// that is killed meanwhile leaves a program that does not run again.
package programs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"waldo/internal/model/id"
	"waldo/internal/storage/database"
	"waldo/internal/storage/safefile"
)

// Program is a suspended program.
type Program struct {
	Capability string    `json:"capability"`
	Session    string    `json:"session"`
	Principal  string    `json:"principal"`
	Workspace  string    `json:"workspace"`
	Delegation string    `json:"delegation,omitempty"` // that its run was made under
	Approvals  []string  `json:"approvals"`
	At         time.Time `json:"at"`
	Place      string    `json:"place,omitempty"` // the state directory that suspended it, of several on one database
	// Start has the arguments of the call that started it.
	Start json.RawMessage `json:"start,omitempty"`
	Image []byte          `json:"-"`
}

// Errors of Take.
var (
	ErrAbsent  = errors.New("no such suspended program")
	ErrRunning = errors.New("this program went on before, and does not run twice")
	ErrDamaged = errors.New("the file of this program was changed or is damaged")
)

// Retention is how long a suspended program is stored.
const Retention = 30 * 24 * time.Hour

// Most is how many programs are stored at a time, give or take a hundred.
const Most = 20_000

// taken ends the name of a program that goes on.
const taken = ".taken"

// Store is a folder of programs, and the rows of the database that it shares. The zero Store stores nothing.
type Store struct {
	Dir    string
	Rows   *database.Store // nil: absent
	Shares bool            // new programs become rows, if rows have the key of the store
}

// key returns the key of this folder. It makes one for a new folder.
func (s Store) key() ([]byte, error) {
	if s.Dir == "" {
		return nil, errors.New("programs: no folder")
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	return safefile.Key(filepath.Join(s.Dir, "key"))
}

// Save stores a program of the time At and returns its id.
func (s Store) Save(p Program) (string, error) {
	name := id.New(id.Program)
	shares := s.Shares && s.Rows != nil && s.Rows.Shared() && s.Rows.Marks()
	if name[len(name)-2] == 'a' { // reading the folder takes milliseconds when it is full, so one in 32 does
		s.Sweep(p.At)
		names, err := os.ReadDir(s.Dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) || len(names) > Most {
			return "", errors.Join(err, fmt.Errorf("programs: %d are suspended, which is the most", Most))
		}
	}
	if shares {
		return name, s.saveRow(p, name)
	}
	key, err := s.key()
	if err != nil {
		return "", err
	}
	b, err := seal(key, p, name)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(s.Dir, "new-")
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(s.Dir, name))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return name, err
}

// seal seals a program: what is stored under another name does not open.
func seal(key []byte, p Program, name string) ([]byte, error) {
	head, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return safefile.Seal(key, append(append(head, '\n'), p.Image...), name)
}

// unseal opens what seal returned.
func unseal(key, b []byte, name string) (p Program, err error) {
	text, err := safefile.Unseal(key, b, name)
	if err != nil {
		return p, errors.Join(ErrDamaged, err)
	}
	head, image, ok := strings.Cut(string(text), "\n")
	if !ok || json.Unmarshal([]byte(head), &p) != nil {
		return Program{}, ErrDamaged
	}
	p.Image = []byte(image)
	return p, nil
}

// Take takes a program of a principal, so that it goes on. One call succeeds. End or Return must follow.
func (s Store) Take(name, principal string) (Program, error) {
	if !id.Is(id.Program, name) || s.Dir == "" {
		return Program{}, ErrAbsent
	}
	p, err := s.openFile(name, name)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(filepath.Join(s.Dir, name+taken)); err == nil {
			return Program{}, ErrRunning
		}
		return s.takeRow(name, principal)
	}
	if err != nil {
		return Program{}, err
	}
	if p.Principal != principal { // another's program is as one that is not there
		return Program{}, ErrAbsent
	}
	if err := os.Rename(filepath.Join(s.Dir, name), filepath.Join(s.Dir, name+taken)); err != nil {
		return Program{}, ErrRunning
	}
	return p, nil
}

// Look returns a program of a principal, whether or not it was taken.
func (s Store) Look(name, principal string) (Program, error) {
	if !id.Is(id.Program, name) || s.Dir == "" {
		return Program{}, ErrAbsent
	}
	p, err := s.openFile(name, name)
	if errors.Is(err, fs.ErrNotExist) {
		p, err = s.openFile(name+taken, name)
	}
	if errors.Is(err, fs.ErrNotExist) || s.noted(name) {
		p, _, err = s.lookRow(name)
	}
	if err == nil && p.Principal != principal {
		return Program{}, ErrAbsent
	}
	return p, err
}

// openFile opens a program by the name of its file. A file of another program does not open.
func (s Store) openFile(file, name string) (Program, error) {
	b, err := safefile.Read(filepath.Join(s.Dir, file))
	if err != nil {
		return Program{}, err
	}
	key, err := s.key()
	if err != nil {
		return Program{}, err
	}
	return unseal(key, b, name)
}

// End removes a program that was taken. The note of a row stays.
func (s Store) End(name string) error {
	if s.noted(name) {
		_, err := s.drop(name)
		return err
	}
	return os.Remove(filepath.Join(s.Dir, name+taken))
}

// Return puts a program back that was taken and of which nothing ran.
func (s Store) Return(name string) error {
	if s.noted(name) {
		_, err := s.move(name, gone, waiting)
		return errors.Join(err, os.Remove(filepath.Join(s.Dir, name+taken)))
	}
	return os.Rename(filepath.Join(s.Dir, name+taken), filepath.Join(s.Dir, name))
}

// Sweep removes programs older than Retention. An entry that cannot be removed stays.
func (s Store) Sweep(now time.Time) {
	entries, _ := os.ReadDir(s.Dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.Name() != "key" && now.Sub(info.ModTime()) > Retention {
			_ = os.Remove(filepath.Join(s.Dir, e.Name()))
		}
	}
	_ = s.sweepRows(now.Add(-Retention))
}
