// Package trust remembers which configurations the operator trusts, with the waldo.lock and the programs beside them. A
// waldo.yaml that was only found in the current folder loads as it was trusted or not at all.
package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"waldo/internal/app/fault"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/contract"
)

// Record is what is remembered of one configuration.
type Record struct {
	Digest   string            `json:"digest,omitempty"`   // of the file, as the operator read it; empty: it was never trusted
	Lock     string            `json:"lock,omitempty"`     // digest of waldo.lock at that time, or NoLock
	Programs map[string]string `json:"programs,omitempty"` // the programs of its folder that servers start, to their digests
	Pinned   bool              `json:"pinned,omitempty"`   // waldo.lock was there at its last start
	At       time.Time         `json:"at"`
}

// NoLock stands for a waldo.lock that is not there.
const NoLock = "none"

func file(state string) string { return filepath.Join(state, "trust.json") }

func Read(state string) (map[string]Record, error) {
	m := map[string]Record{}
	b, err := os.ReadFile(file(state))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, &fault.Error{Text: file(state) + " is damaged", Err: err, Tip: "remove it and run waldo trust again"}
	}
	return m, nil
}

func Write(state string, m map[string]Record) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return WriteAtomic(file(state), b)
}

// Of returns what is remembered of a configuration, and all records with its key.
func Of(state string, cfg *contract.Config) (all map[string]Record, key string, err error) {
	if key, err = filepath.Abs(cfg.File); err != nil {
		return nil, "", err
	}
	all, err = Read(state)
	return all, key, err
}

// digestOf returns the digest of a file; NoLock where there is none.
func Digest(file string) (string, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return NoLock, nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// Held refuses a configuration that was only found and differs, itself or its lock, from what was trusted.
func Held(state string, cfg *contract.Config) error {
	all, key, err := Of(state, cfg)
	if err != nil {
		return err
	}
	was := all[key]
	if was.Digest != cfg.Digest || was.Lock == "" {
		return &fault.Error{Usage: true, Text: fmt.Sprintf("%s is new or has changed since you trusted it", cfg.File),
			Tip: "read it, then run: waldo trust " + cfg.File + "   (or name it: --config " + cfg.File + ")"}
	}
	lock := LockFile(state, cfg)
	now, err := Digest(lock)
	switch {
	case err != nil:
		return err
	case now == was.Lock || now == NoLock: // one that is gone is refused where servers are started
		return nil
	case was.Lock == NoLock:
		return &fault.Error{Usage: true, Text: fmt.Sprintf("%s appeared after %s was trusted", lock, cfg.File),
			Tip: "it says which packages and tools are accepted: read it, then run: waldo trust " + cfg.File}
	}
	return &fault.Error{Usage: true, Text: fmt.Sprintf("%s changed after %s was trusted", lock, cfg.File),
		Tip: "it says which packages and tools are accepted: read the change, then run: waldo trust " + cfg.File}
}

// PinsGone refuses to start servers without the waldo.lock that an earlier start had, and remembers a lock
// that is there.
func PinsGone(state string, cfg *contract.Config) error {
	if cfg.File == "" || len(cfg.Servers) == 0 {
		return nil
	}
	all, key, err := Of(state, cfg)
	if err != nil {
		return err
	}
	was := all[key]
	now, err := Digest(LockFile(state, cfg))
	switch {
	case err != nil:
		return err
	case now == NoLock && (was.Pinned || was.Lock != NoLock && was.Lock != ""):
		return &fault.Error{Usage: true, Text: fmt.Sprintf("%s is gone: it was there before, and without it a changed tool is taken as first seen", LockFile(state, cfg)),
			Tip: "bring it back; or accept what the servers show now: waldo lock --accept NAME; or go on without it: waldo trust " + cfg.File}
	case now == NoLock || was.Pinned:
		return nil
	}
	was.Pinned, was.At = true, time.Now().UTC()
	all[key] = was
	return Write(state, all)
}

// AcceptLock remembers the lock that the operator has just accepted, in place of the one before, for each
// configuration of its folder that was trusted with that one.
func AcceptLock(state string, cfg *contract.Config, before string) error {
	if cfg.File == "" {
		return nil
	}
	all, key, err := Of(state, cfg)
	if err != nil {
		return err
	}
	now, err := Digest(LockFile(state, cfg))
	if err != nil {
		return err
	}
	was := all[key]
	was.Pinned = now != NoLock
	all[key] = was
	for file, t := range all {
		gone := file == key && before == NoLock && t.Pinned // pinned anew
		if filepath.Dir(file) == filepath.Dir(key) && (t.Lock == before || gone && t.Lock != "") {
			t.Lock = now
			all[file] = t
		}
	}
	return Write(state, all)
}

// Programs are the programs that servers start and that lie in the folder of the configuration, with their
// digests: who can write the configuration can write them.
func Programs(state string, cfg *contract.Config) (map[string]string, error) {
	dir, err := filepath.Abs(filepath.Dir(cfg.File))
	if err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	out, here := map[string]string{}, files.Here(state)
	for _, s := range cfg.Servers {
		for _, p := range here.Programs(s) {
			behind, err := filepath.EvalSymlinks(p)
			if err != nil {
				return nil, err
			}
			if !contract.Within(p, dir) && !contract.Within(behind, real) {
				continue
			}
			if out[p], err = Digest(p); err != nil { // of what a link leads to: the link can be changed, too
				return nil, err
			}
		}
	}
	return out, nil
}

// TrustedPrograms are those of a configuration that was only found.
func TrustedPrograms(state string, cfg *contract.Config) (map[string]string, error) {
	all, key, err := Of(state, cfg)
	if err != nil {
		return nil, err
	}
	if was := all[key].Programs; was != nil {
		return was, nil
	}
	return map[string]string{}, nil
}

// Unchanged refuses to start a program of a configuration's folder that differs from the trusted one. trusted holds
// their digests; nil: the operator named the configuration, so that every program counts as trusted.
func Unchanged(state string, cfg *contract.Config, trusted map[string]string, s contract.Server) error {
	if trusted == nil {
		return nil
	}
	now, err := Programs(state, &contract.Config{File: cfg.File, Servers: map[string]contract.Server{s.Name: s}})
	if err != nil {
		return err
	}
	for file, digest := range now {
		if trusted[file] != digest {
			return fmt.Errorf("server %s: %s is not the program that was trusted with %s: read it, then run: waldo trust %s", s.Name, file, cfg.File, cfg.File)
		}
	}
	return nil
}

// LockFile is waldo.lock beside the configuration, or in the state directory where there is no configuration.
func LockFile(state string, cfg *contract.Config) string {
	if cfg.File == "" {
		return filepath.Join(state, "waldo.lock")
	}
	return filepath.Join(filepath.Dir(cfg.File), "waldo.lock")
}

// WriteAtomic replaces a file of waldo's own state, whole or not at all.
func WriteAtomic(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
