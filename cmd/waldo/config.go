package main

import (
	"context"
	"io"
	"os"

	"waldo/cmd/waldo/completing"
	"waldo/internal/app"
	"waldo/internal/app/configfile"
	"waldo/internal/core/approval"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

// source is how the flags name the configuration.
func (g *global) source() configfile.Source {
	return configfile.Source{Config: g.config, Trusted: g.trusted, Environment: g.env, Hosted: g.hosted,
		Say: func(text string) {
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

// openState creates and checks the state directory, and returns its path.
func openState(g *global) (string, error) { return app.StateDir(g.state) }

// openStorage opens the state directory for a command that needs no more of waldo. The caller closes it.
func openStorage(g *global) (*app.Storage, error) {
	state, err := openState(g)
	if err != nil {
		return nil, err
	}
	return app.OpenStorage(state)
}

// openApplication opens the application with the flags of every command.
func openApplication(ctx context.Context, g *global, s app.Options) (*app.App, error) {
	s.State, s.Source, s.Known, s.Redact, s.Version = g.state, g.source(), g.known, g.redact, version
	s.Passphrase = asks()
	s.Progress = downloads
	return app.New(ctx, s)
}

// downloads shows on a terminal how much of a download is done.
func downloads(what string, bytes int64) io.WriteCloser {
	return terminal.Progress(os.Stderr, what, bytes)
}

// completes gives the package completing its sources.
func completes(g *global) completing.Waldo {
	return completing.Waldo{
		State:   func() (string, error) { return openState(g) },
		Storage: func() (*app.Storage, error) { return openStorage(g) },
		Config:  func() (string, *contract.Config, error) { return configured(g) },
		Everywhere: func() (string, *contract.Config, error) {
			return configured(&global{config: g.config, trusted: g.trusted, state: g.state})
		},
		Approvals: func() (*approval.Service, func() error, error) { return openApprovals(g) },
	}
}
