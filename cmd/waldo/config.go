package main

import (
	"os"

	"waldo/internal/app/configfile"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

// source is how the flags name the configuration.
func (g *global) source() configfile.Source {
	return configfile.Source{Config: g.config, Trusted: g.trusted, Environment: g.env, Hosted: g.hosted, Say: func(text string) {
		display.Fprintf(os.Stderr, "waldo: %s\n", text)
	}}
}

// configured opens the state directory and loads the configuration in force, for a command that needs no more of waldo.
func configured(g *global) (state string, cfg *contract.Config, err error) {
	if state, err = openState(g); err != nil {
		return "", nil, err
	}
	cfg, err = g.source().Load(state)
	return state, cfg, err
}
