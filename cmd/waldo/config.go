package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/contract"
)

// stateDir returns where waldo keeps its state: --state, $WALDO_STATE, $XDG_STATE_HOME/waldo,
// ~/.local/state/waldo, and /var/lib/waldo for root without a home.
func stateDir(flag string) (string, error) {
	for _, dir := range []string{flag, os.Getenv("WALDO_STATE")} {
		if dir != "" {
			return filepath.Abs(dir)
		}
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "waldo"), nil
	}
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		return filepath.Join(home, ".local", "state", "waldo"), nil
	}
	if os.Geteuid() == 0 {
		return "/var/lib/waldo", nil
	}
	return "", usage("give --state DIR or set WALDO_STATE", "no place for waldo's state: there is no home directory")
}

// configFile returns the configuration to load and whether it was named by the operator or only
// found. An empty path means that there is none, which is a working default.
func configFile(flag string) (path string, named bool) {
	if flag != "" {
		return flag, true
	}
	if env := os.Getenv("WALDO_CONFIG"); env != "" {
		return env, true
	}
	candidates := []string{"waldo.yaml"}
	if dir, err := os.UserConfigDir(); err == nil {
		candidates = append(candidates, filepath.Join(dir, "waldo", "waldo.yaml"))
	}
	for i, p := range candidates {
		if _, err := os.Stat(p); err == nil {
			return p, i > 0 // one in the user's own configuration folder is as good as named
		}
	}
	return "", false
}

// configured opens the state directory and loads the configuration in force, for a command that
// needs no more of the house.
func configured(g *global) (state string, cfg *contract.Config, err error) {
	if state, err = openState(g); err != nil {
		return "", nil, err
	}
	cfg, err = loadConfig(g, state)
	return state, cfg, err
}

// loadConfig loads the configuration in force. A waldo.yaml that was only found in the current
// folder loads after `waldo trust` has recorded its digest: whoever wrote the folder is not the
// operator.
func loadConfig(g *global, state string) (*contract.Config, error) {
	path, named := configFile(g.config)
	if path == "" {
		return contract.Default(), nil
	}
	cfg, err := contract.Load(path)
	if err != nil {
		return nil, &exit{code: exitUsage, err: err, hint: "waldo check " + path + " shows where and how"}
	}
	if named {
		return cfg, nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	trusted, err := readTrust(state)
	if err != nil {
		return nil, err
	}
	if trusted[abs].Digest != cfg.Digest {
		return nil, &exit{code: exitUsage, text: fmt.Sprintf("%s was found here but is not trusted in its present form", path),
			hint: "read it, then run: waldo trust " + path + "   (or name it: --config " + path + ")"}
	}
	return cfg, nil
}

// trust is one found configuration that the operator has read.
type trust struct {
	Digest string    `json:"digest"`
	At     time.Time `json:"at"`
}

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

func newTrust(g *global) *cobra.Command {
	return &cobra.Command{
		Use:     "trust [FILE]",
		Short:   "Record the digest of a waldo.yaml that was only found, so that it loads",
		Example: "  waldo trust\n  waldo trust ./waldo.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			path := "waldo.yaml"
			if len(args) == 1 {
				path = args[0]
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return usage("give the file to trust", "%v", err)
			}
			if _, err := contract.Load(path); err != nil {
				return &exit{code: exitUsage, err: err, hint: "mend it first: waldo check " + path}
			}
			abs, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			state, err := openState(g)
			if err != nil {
				return err
			}
			m, err := readTrust(state)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(text)
			m[abs] = trust{Digest: "sha256:" + hex.EncodeToString(sum[:]), At: time.Now().UTC()}
			b, err := json.MarshalIndent(m, "", "  ")
			if err != nil {
				return err
			}
			if err := writeAtomic(trustFile(state), b); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "trusted %s (%s)\n", abs, m[abs].Digest)
			return nil
		},
	}
}

// writeAtomic replaces a file of waldo's own state, whole or not at all.
func writeAtomic(path string, b []byte) error {
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
