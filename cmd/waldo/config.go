package main

import (
	"errors"
	"os"
	"path/filepath"

	"waldo/internal/model/contract"
	"waldo/internal/model/display"
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

// userConfig is the user's own configuration, which holds in every folder that has none.
func userConfig() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "waldo", "waldo.yaml"), err
}

// configFile returns the configuration to load and whether it was named by the operator or only
// found. An empty path means that there is none, which is a working default.
func configFile(g *global) (path string, named bool) {
	if g.config != "" {
		return g.config, true
	}
	if g.trusted != "" {
		return g.trusted, false
	}
	if env := os.Getenv("WALDO_CONFIG"); env != "" {
		return env, true
	}
	candidates := []string{"waldo.yaml"}
	if own, err := userConfig(); err == nil {
		candidates = append(candidates, own)
	}
	for i, p := range candidates {
		if _, err := os.Stat(p); err == nil {
			return p, i > 0 // one in the user's own configuration folder is as good as named
		}
	}
	return "", false
}

// environment returns the environment that the operator selects: --environment or $WALDO_ENVIRONMENT; empty:
// the one of the configuration.
func (g *global) environment() string {
	if g.env != "" {
		return g.env
	}
	return os.Getenv("WALDO_ENVIRONMENT")
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
// folder loads after `waldo trust` has recorded it: whoever wrote the folder is not the operator.
func loadConfig(g *global, state string) (*contract.Config, error) {
	path, named := configFile(g)
	if path == "" {
		return contract.Default(), nil
	}
	cfg, err := contract.LoadIn(path, g.environment())
	if err != nil {
		return nil, &exit{code: exitUsage, err: err, hint: "waldo check " + path + " shows where and how"}
	}
	if named {
		return cfg, nil
	}
	err = held(state, cfg)
	if own, none := userConfig(); err != nil && g.hosted && g.trusted == "" && none == nil && neverTrusted(state, cfg) {
		// The operator said nothing of this folder: what holds elsewhere holds here too.
		if _, none := os.Stat(own); none == nil {
			display.Fprintf(os.Stderr, "waldo: %v; %s holds instead\n", err, own)
			return contract.Load(own)
		}
	}
	return cfg, err
}

// neverTrusted reports whether no waldo trust ever recorded a configuration.
func neverTrusted(state string, cfg *contract.Config) bool {
	all, key, err := recordOf(state, cfg)
	return err == nil && all[key].Digest == ""
}

// found reports whether a configuration was only found, so that it holds as far as it was trusted.
func found(g *global, cfg *contract.Config) bool {
	path, named := configFile(g)
	return !named && path != "" && path == cfg.File
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
