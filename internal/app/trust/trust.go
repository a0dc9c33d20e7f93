// Package trust records which configurations the operator trusts, with the waldo.lock and the programs beside them. A
// waldo.yaml found in the current folder loads only if it is trusted and unchanged.
package trust

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"waldo/internal/app/fault"
	"waldo/internal/core/audit"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/safefile"
)

// Record is the stored state of one configuration.
type Record struct {
	Digest   string            `json:"digest,omitempty"`   // of the trusted file; empty: never trusted
	Lock     string            `json:"lock,omitempty"`     // digest of waldo.lock at that time, or NoLock
	Policy   string            `json:"policy,omitempty"`   // digest of log.policy, or NoLock; empty: none is named
	Programs map[string]string `json:"programs,omitempty"` // digests of its folder's programs that its commands run
	Places   map[string]string `json:"places,omitempty"`   // where each path led that it opens to agents and servers
	Pinned   bool              `json:"pinned,omitempty"`   // waldo.lock existed at its last start
	At       time.Time         `json:"at"`
}

// NoLock is the digest of a missing file.
const NoLock = "none"

func file(state string) string { return filepath.Join(state, "trust.json") }

func Read(state string) (map[string]Record, error) {
	m := map[string]Record{}
	b, err := safefile.Read(file(state))
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

// Recorded reports whether the log says that a file was trusted, whatever trust.json has. Where that is gone, a log that
// cannot be read counts as one that has it.
func Recorded(ctx context.Context, state, path string) (trusted bool) {
	_, known := os.Lstat(file(state))
	if _, none := os.Stat(audit.Dir(state)); errors.Is(none, fs.ErrNotExist) {
		return false
	}
	_, err := audit.Select(ctx, audit.Dir(state), audit.Selection{Kind: audit.KindChange}, func(r audit.Record) error {
		var c audit.Change
		if json.Unmarshal(r.Body, &c) == nil && c.Action == "trust" && c.Object == facts.Short(path) {
			trusted = c.Digest != ""
		}
		return nil
	})
	return trusted || err != nil && errors.Is(known, fs.ErrNotExist)
}

func Write(state string, m map[string]Record) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return safefile.Replace(file(state), b, 0o600)
}

// Of loads every record, and the key of a configuration's record.
func Of(state string, cfg *contract.Config) (all map[string]Record, key string, err error) {
	if key, err = filepath.Abs(cfg.File); err != nil {
		return nil, "", err
	}
	all, err = Read(state)
	return all, key, err
}

// Digest returns the digest of a file, or NoLock if it is missing. It refuses pipes and devices, and waits for none.
func Digest(file string) (string, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return NoLock, nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(err, errSpecial(file))
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// Policy returns the digest of the file of log.policy; empty: the configuration names none.
func Policy(cfg *contract.Config) (string, error) {
	if cfg.Log.Policy == "" {
		return "", nil
	}
	return Digest(cfg.Log.Policy)
}

// Accepted returns the digest of all that was trusted, which the first approver signs; empty: nothing was.
func (r Record) Accepted() string {
	if r.Digest == "" {
		return ""
	}
	r.Pinned, r.At = false, time.Time{} // waldo writes these on its own
	b, err := json.Marshal(r)
	if err != nil {
		return ""
	}
	return strictjson.Digest(b)
}

// Words returns all that a record stands for, as a person who signs it reads it, beside what was signed before.
func (r Record) Words(before Record) string {
	if r.Digest == "" {
		return "is no longer trusted"
	}
	say := fmt.Sprintf("%s, waldo.lock %s", r.Digest, r.Lock)
	list := func(what string, now, was map[string]string) {
		for _, name := range slices.Sorted(maps.Keys(now)) {
			say += fmt.Sprintf("\n    %s %q: %s", what, name, now[name])
			if old, known := was[name]; before.Digest != "" && !known {
				say += " (new)"
			} else if known && old != now[name] {
				say += " (changed: it was " + old + ")"
			}
		}
		for _, name := range slices.Sorted(maps.Keys(was)) {
			if _, still := now[name]; !still {
				say += fmt.Sprintf("\n    %s %q: gone", what, name)
			}
		}
	}
	list("witnesses of", r.policy(), before.policy())
	list("program", r.Programs, before.Programs)
	list("place", r.Places, before.Places)
	return say
}

func (r Record) policy() map[string]string {
	if r.Policy == "" {
		return nil
	}
	return map[string]string{"log.policy": r.Policy}
}

// Held returns the record of a configuration. It returns an error if the configuration, its log.policy or its lock
// differs from the trusted one.
func Held(state string, cfg *contract.Config) (was Record, err error) {
	all, key, err := Of(state, cfg)
	if err != nil {
		return was, err
	}
	if was = all[key]; was.Programs == nil {
		was.Programs = map[string]string{}
	}
	return was, was.held(state, cfg)
}

func (was Record) held(state string, cfg *contract.Config) error {
	if was.Digest != cfg.Digest || was.Lock == "" {
		return fault.Untrusted("read it, then run: waldo trust "+cfg.File+"   (before an approver is enrolled, --config "+
			cfg.File+" does too)",
			"%s is new or has changed since you trusted it", cfg.File)
	}
	for _, path := range slices.Sorted(maps.Keys(cfg.Places)) {
		if was.Places[path] != cfg.Places[path] {
			return fault.Untrusted("bring it back; or look at what is there, then run: waldo trust "+cfg.File,
				"%s leads to %s, and led to %s when %s was trusted", path,
				cfg.Places[path], cmp.Or(was.Places[path], "nothing"), cfg.File)
		}
	}
	if wrong := Uncovered(cfg); len(wrong) > 0 {
		return &fault.Error{Usage: true, Untrusted: true, Err: wrong[:1], Tip: wrong[0].Hint}
	}
	policy, err := Policy(cfg)
	if err != nil {
		return err
	}
	if policy != was.Policy {
		return fault.Untrusted("it names the witnesses of the log: read it, then run: waldo trust "+cfg.File,
			"%s changed after %s was trusted", cfg.Log.Policy, cfg.File)
	}
	lock := LockFile(state, cfg)
	now, err := Digest(lock)
	switch {
	case err != nil:
		return err
	case now == was.Lock || now == NoLock: // a missing lock is refused when servers start
		return nil
	case was.Lock == NoLock:
		return fault.Untrusted("it says which packages and tools are accepted: read it, then run: waldo trust "+cfg.File,
			"%s appeared after %s was trusted", lock, cfg.File)
	}
	return fault.Untrusted(
		"it says which packages and tools are accepted: read the change, then run: waldo trust "+cfg.File, "%s changed after %s was trusted", lock, cfg.File)
}

// PinsGone returns an error if the waldo.lock of an earlier start is missing. It records a lock that exists.
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
		return &fault.Error{Usage: true,
			Text: fmt.Sprintf("%s is gone: it was there before, and without it a changed tool is taken as first seen",
				LockFile(state, cfg)),
			Tip: "bring it back; or accept what the servers show now: waldo lock --accept NAME; or go on without it: " +
				"waldo trust " + cfg.File}
	case now == NoLock || was.Pinned:
		return nil
	}
	was.Pinned, was.At = true, time.Now().UTC()
	all[key] = was
	return Write(state, all)
}

// AcceptLock replaces the digest of an earlier lock by that of the one that the operator accepts. It does so for each
// configuration of the folder that was trusted with the earlier lock, and returns all records for Write, and those.
func AcceptLock(state string, cfg *contract.Config, before, now string) (all, changed map[string]Record, err error) {
	if cfg.File == "" {
		return nil, nil, nil
	}
	all, key, err := Of(state, cfg)
	if err != nil {
		return nil, nil, err
	}
	changed = map[string]Record{}
	was := all[key]
	was.Pinned = now != NoLock
	all[key] = was
	for file, t := range all {
		gone := file == key && before == NoLock && t.Pinned // pinned again
		if filepath.Dir(file) == filepath.Dir(key) && (t.Lock == before || gone && t.Lock != "") {
			if t.Lock != now {
				t.Lock = now
				all[file], changed[file] = t, t
			}
		}
	}
	return all, changed, nil
}

// Programs returns the digests of the files in the configuration's folder that its commands run: the programs of
// servers, and what the commands outside of sandboxes name. A person who can write the configuration can write those,
// too.
func Programs(state string, cfg *contract.Config) (map[string]string, error) {
	return programs(state, cfg, nil)
}

// programs is Programs; a file of trusted that is gone has the digest NoLock.
func programs(state string, cfg *contract.Config, trusted map[string]string) (map[string]string, error) {
	f, err := openFolder(cfg, trusted)
	if err != nil {
		return nil, err
	}
	here := files.Here(state)
	for _, s := range cfg.Servers {
		if s.Placement == "outside" {
			continue
		}
		for _, p := range here.Programs(s) {
			if real, err := filepath.EvalSymlinks(p); err == nil && contract.Within(real, f.real) || f.inside(p) {
				if err := f.add(p); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, c := range commands(cfg) {
		if err := f.take(c.words); err != nil {
			return nil, err
		}
	}
	return f.found, nil
}

// inside reports a path that the configuration's folder holds by its name.
func (f *folder) inside(path string) bool {
	dir, err := f.at.Beside(".")
	return err == nil && contract.Within(path, dir)
}

// Unchanged returns an error if a program in the configuration's folder differs from the trusted one.
func Unchanged(state string, cfg *contract.Config, s contract.Server) error {
	if cfg.Programs == nil {
		return nil
	}
	only := &contract.Config{File: cfg.File, Servers: map[string]contract.Server{s.Name: s}}
	now, err := programs(state, only, cfg.Programs)
	if err != nil {
		return err
	}
	if err := differs(cfg, now); err != nil {
		return fmt.Errorf("server %s: %w", s.Name, err)
	}
	return nil
}

// LockFile returns the waldo.lock beside the configuration. Without a configuration it is in the state directory.
func LockFile(state string, cfg *contract.Config) string {
	if cfg.File == "" {
		return filepath.Join(state, "waldo.lock")
	}
	return filepath.Join(filepath.Dir(cfg.File), "waldo.lock")
}
