// Package configfile finds and loads the configuration in force and the state directory.
package configfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"waldo/internal/app/fault"
	"waldo/internal/app/trust"
	"waldo/internal/config"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/contract"
)

// Source is how the operator names a configuration.
type Source struct {
	Config      string            // --config
	Trusted     string            // --trusted-config: loads only as waldo trust recorded it
	State       string            // --state
	Environment string            // --environment
	Hosted      bool              // an agent host started this process, in a folder that the operator did not choose
	Say         func(text string) // reports which configuration replaces another
}

// StateDir returns where waldo keeps its state: --state, $WALDO_STATE, $XDG_STATE_HOME/waldo,
// ~/.local/state/waldo, and /var/lib/waldo for root without a home.
func StateDir(flag string) (string, error) {
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
	return "", fault.Usage("give --state DIR or set WALDO_STATE", "no place for waldo's state: this user has no home directory")
}

// UserConfig returns the user's own configuration, which applies in every folder without one.
func UserConfig() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "waldo", "waldo.yaml"), err
}

// File returns the configuration to load, and whether the operator named it. Without a configuration the path is
// empty; that is a valid setup.
func (s Source) File() (path string, named bool) {
	if s.Config != "" {
		return s.Config, true
	}
	if s.Trusted != "" {
		return s.Trusted, false
	}
	if env := os.Getenv("WALDO_CONFIG"); env != "" {
		return env, true
	}
	if _, err := os.Lstat("waldo.yaml"); err == nil || !errors.Is(err, fs.ErrNotExist) || s.wasTrusted("waldo.yaml") {
		return "waldo.yaml", false // also a link that leads nowhere, and one that is gone: Load refuses them
	}
	if own, err := UserConfig(); err == nil {
		if _, err := os.Lstat(own); err == nil {
			return own, true // the user's own configuration counts as named
		}
	}
	return "", false
}

// Here returns the waldo.yaml of the current folder if it would load there; empty: the operator named another file.
func (s Source) Here() string {
	if s.Config != "" || s.Trusted != "" || os.Getenv("WALDO_CONFIG") != "" {
		return ""
	}
	return "waldo.yaml"
}

// wasTrusted reports whether waldo trust ever recorded a configuration.
func (s Source) wasTrusted(file string) bool {
	state, err := StateDir(s.State)
	return err == nil && wasTrusted(state, file) // no state, no record
}

// wasTrusted looks in trust.json and in the log: an entry can be edited out of the file. A record that cannot be read
// counts as one.
func wasTrusted(state, file string) bool {
	all, key, err := trust.Of(state, &contract.Config{File: file})
	return err != nil || all[key].Digest != "" || trust.Recorded(context.Background(), state, key)
}

// Selected returns the environment that the operator selects: --environment or $WALDO_ENVIRONMENT; empty:
// the one of the configuration.
func (s Source) Selected() string {
	if s.Environment != "" {
		return s.Environment
	}
	return os.Getenv("WALDO_ENVIRONMENT")
}

// Load loads the current configuration. A waldo.yaml found in the current folder loads only after `waldo trust`: the
// folder can come from another person.
func (s Source) Load(state string) (*contract.Config, error) {
	path, named := s.File()
	if path == "" {
		return config.Default(), nil
	}
	cfg, err := config.LoadIn(path, s.Selected())
	if errors.Is(err, fs.ErrNotExist) && !named && s.wasTrusted(path) {
		return nil, &fault.Error{Usage: true, Text: path + " is gone, or a link that leads nowhere, and it was trusted",
			Err: err, Tip: "bring it back; or go on without it: waldo trust --forget " + path}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &fault.Error{
			Usage: true, Err: err, Tip: "give a configuration that is there; waldo init writes waldo.yaml",
		}
	}
	if err != nil {
		return nil, &fault.Error{Usage: true, Err: err, Tip: "waldo check " + path + " shows where and how"}
	}
	if named {
		return asFound(cfg)
	}
	cfg.Places = files.Places(cfg)
	was, err := trust.Held(state, cfg)
	cfg.Programs, cfg.Log.Accepted = was.Programs, was.Policy
	if own, none := UserConfig(); err != nil && s.Hosted && s.Trusted == "" && none == nil && !wasTrusted(state, cfg.File) {
		// The operator did not decide about this folder: the user's own configuration applies.
		if _, none := os.Stat(own); none == nil {
			s.Say(fmt.Sprintf("%v; %s holds instead", err, own))
			if cfg, err = config.Load(own); err == nil {
				return asFound(cfg)
			}
			return cfg, err
		}
	}
	return cfg, err
}

// LoadForQuestions loads the configuration for a command about questions. They belong to the state directory, so a
// waldo.yaml of this folder that is broken or not trusted does not count: the command works as in a folder without one.
func (s Source) LoadForQuestions(state string) (*contract.Config, error) {
	cfg, err := s.Load(state)
	no, broken := (*fault.Error)(nil), contract.Problems{}
	if !errors.As(err, &no) || !no.Untrusted && !errors.As(err, &broken) || s.Here() == "" {
		return cfg, err
	}
	if len(broken) > 0 && !no.Untrusted {
		s.Say(fmt.Sprintf("note: the configuration is broken, and does not count for questions: %s; waldo check %s "+
			"shows where and how", broken[0], s.Here()))
	} else {
		s.Say("note: " + no.Error() + "; it does not count for questions")
	}
	if own, none := UserConfig(); none == nil {
		if cfg, err = config.Load(own); !errors.Is(err, fs.ErrNotExist) {
			return cfg, err
		}
	}
	return config.Default(), nil
}

// asFound takes a configuration that the operator named, with what it names as that is now.
func asFound(cfg *contract.Config) (_ *contract.Config, err error) {
	cfg.Places = files.Places(cfg)
	cfg.Log.Accepted, err = trust.Policy(cfg)
	return cfg, err
}
