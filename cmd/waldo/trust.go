package main

import (
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
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/agenthosts"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

// trust is what is remembered of one configuration.
type trust struct {
	Digest   string            `json:"digest,omitempty"`   // of the file, as the operator has read it; empty: it was never trusted
	Lock     string            `json:"lock,omitempty"`     // digest of waldo.lock at that time, or noLock
	Programs map[string]string `json:"programs,omitempty"` // the programs of its folder that servers start, to their digests
	Pinned   bool              `json:"pinned,omitempty"`   // waldo.lock was there at its last start
	At       time.Time         `json:"at"`
}

// noLock stands for a waldo.lock that is not there.
const noLock = "none"

func trustFile(state string) string { return filepath.Join(state, "trust.json") }

func readTrust(state string) (map[string]trust, error) {
	m := map[string]trust{}
	b, err := os.ReadFile(trustFile(state))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, &exit{code: exitFailed, text: trustFile(state) + " is damaged", err: err, hint: "remove it and run waldo trust again"}
	}
	return m, nil
}

func writeTrust(state string, m map[string]trust) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return writeAtomic(trustFile(state), b)
}

// recordOf returns what is remembered of a configuration, and all records with its key.
func recordOf(state string, cfg *contract.Config) (all map[string]trust, key string, err error) {
	if key, err = filepath.Abs(cfg.File); err != nil {
		return nil, "", err
	}
	all, err = readTrust(state)
	return all, key, err
}

// digestOf returns the digest of a file; noLock where there is none.
func digestOf(file string) (string, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return noLock, nil
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

// held refuses a configuration that was only found and is not as it was trusted, together with its lock.
func held(state string, cfg *contract.Config) error {
	all, key, err := recordOf(state, cfg)
	if err != nil {
		return err
	}
	was := all[key]
	if was.Digest != cfg.Digest || was.Lock == "" {
		return &exit{code: exitUsage, text: fmt.Sprintf("%s is new or has changed since you trusted it", cfg.File),
			hint: "read it, then run: waldo trust " + cfg.File + "   (or name it: --config " + cfg.File + ")"}
	}
	lock := lockFile(state, cfg)
	now, err := digestOf(lock)
	switch {
	case err != nil:
		return err
	case now == was.Lock || now == noLock: // one that is gone is refused where servers are started
		return nil
	case was.Lock == noLock:
		return &exit{code: exitUsage, text: fmt.Sprintf("%s appeared after %s was trusted", lock, cfg.File),
			hint: "it says which packages and tools are accepted: read it, then run: waldo trust " + cfg.File}
	}
	return &exit{code: exitUsage, text: fmt.Sprintf("%s changed after %s was trusted", lock, cfg.File),
		hint: "it says which packages and tools are accepted: read the change, then run: waldo trust " + cfg.File}
}

// pinsGone refuses to start servers without the waldo.lock that an earlier start had, and remembers a lock
// that is there.
func pinsGone(state string, cfg *contract.Config) error {
	if cfg.File == "" || len(cfg.Servers) == 0 {
		return nil
	}
	all, key, err := recordOf(state, cfg)
	if err != nil {
		return err
	}
	was := all[key]
	now, err := digestOf(lockFile(state, cfg))
	switch {
	case err != nil:
		return err
	case now == noLock && (was.Pinned || was.Lock != noLock && was.Lock != ""):
		return &exit{code: exitUsage, text: fmt.Sprintf("%s is gone: it was there before, and without it a changed tool is taken as first seen", lockFile(state, cfg)),
			hint: "bring it back; or accept what the servers show now: waldo lock --accept NAME; or go on without it: waldo trust " + cfg.File}
	case now == noLock || was.Pinned:
		return nil
	}
	was.Pinned, was.At = true, time.Now().UTC()
	all[key] = was
	return writeTrust(state, all)
}

// trustLock remembers the lock that the operator has just accepted, in place of the one before, for each
// configuration of its folder that was trusted with that one.
func trustLock(state string, cfg *contract.Config, before string) error {
	if cfg.File == "" {
		return nil
	}
	all, key, err := recordOf(state, cfg)
	if err != nil {
		return err
	}
	now, err := digestOf(lockFile(state, cfg))
	if err != nil {
		return err
	}
	was := all[key]
	was.Pinned = now != noLock
	all[key] = was
	for file, t := range all {
		gone := file == key && before == noLock && t.Pinned // pinned anew
		if filepath.Dir(file) == filepath.Dir(key) && (t.Lock == before || gone && t.Lock != "") {
			t.Lock = now
			all[file] = t
		}
	}
	return writeTrust(state, all)
}

// programsOf are the programs that servers start and that lie in the folder of the configuration, with their
// digests: who can write the configuration can write them.
func programsOf(state string, cfg *contract.Config) (map[string]string, error) {
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
			if out[p], err = digestOf(p); err != nil { // of what a link leads to: the link can be changed, too
				return nil, err
			}
		}
	}
	return out, nil
}

// trustedPrograms are those of a configuration that was only found.
func trustedPrograms(state string, cfg *contract.Config) (map[string]string, error) {
	all, key, err := recordOf(state, cfg)
	if err != nil {
		return nil, err
	}
	if was := all[key].Programs; was != nil {
		return was, nil
	}
	return map[string]string{}, nil
}

// unchanged refuses to start a program of a trusted configuration's folder that is another than was trusted.
func (h *house) unchanged(s contract.Server) error {
	if h.programs == nil {
		return nil // the operator named the configuration
	}
	now, err := programsOf(h.state, &contract.Config{File: h.cfg.File, Servers: map[string]contract.Server{s.Name: s}})
	if err != nil {
		return err
	}
	for file, digest := range now {
		if h.programs[file] != digest {
			return fmt.Errorf("server %s: %s is not the program that was trusted with %s: read it, then run: waldo trust %s", s.Name, file, h.cfg.File, h.cfg.File)
		}
	}
	return nil
}

func newTrust(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "trust [FILE]",
		Short: "Trust the waldo.yaml in this directory",
		Long: "Records the digest of the file, of the waldo.lock beside it (or that there is none), and of the programs and scripts\n" +
			"in its folder that its servers start. A change of any of them has to be trusted again. Lists what it recorded, and what\n" +
			"each server's sandbox is shown of this machine's files.",
		Example: "  waldo trust\n  waldo trust ./waldo.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			path := "waldo.yaml"
			if len(args) == 1 {
				path = args[0]
			}
			if _, err := os.Stat(path); err != nil {
				return usage("give the file to trust", "%v", err)
			}
			cfg, err := contract.Load(path)
			if err != nil {
				return &exit{code: exitUsage, err: err, hint: "fix it first: waldo check " + path}
			}
			shown, refused, _ := shownFiles(g, cfg)
			if len(refused) > 0 {
				return &exit{code: exitUsage, err: refused, hint: "fix it first: waldo check " + path}
			}
			state, err := openState(g)
			if err != nil {
				return err
			}
			m, abs, err := recordOf(state, cfg)
			if err != nil {
				return err
			}
			t := trust{Digest: cfg.Digest, At: time.Now().UTC()}
			if t.Lock, err = digestOf(lockFile(state, cfg)); err != nil {
				return err
			}
			if t.Programs, err = programsOf(state, cfg); err != nil {
				return err
			}
			t.Pinned = t.Lock != noLock
			m[abs] = t
			if err := writeTrust(state, m); err != nil {
				return err
			}
			tellTrust(c.OutOrStdout(), abs, t)
			tellShown(c.OutOrStdout(), shown)
			return nil
		},
	}
}

func tellTrust(w io.Writer, file string, t trust) {
	display.Fprintf(w, "trusted %s (%s)\n", file, t.Digest)
	if t.Pinned {
		display.Fprintf(w, "with waldo.lock (%s)\n", t.Lock)
	} else {
		display.Fprintf(w, "without a waldo.lock: nothing pins what its servers show\n")
	}
	for _, p := range slices.Sorted(maps.Keys(t.Programs)) {
		display.Fprintf(w, "with the program %s (%s)\n", agenthosts.Show(p), t.Programs[p])
	}
}
