// Package cli is what all commands share: the flags of every command, opening waldo with them, reading arguments, and
// the questions that a command's own calls ask. Features have their commands from it too.
package cli

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"waldo/internal/app"
	"waldo/internal/app/configfile"
	"waldo/internal/cli/records"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/core/redact"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/secret"
	"waldo/internal/storage/database"
)

// Context holds the flags of every command. The zero value is a command without flags.
type Context struct {
	Version     string           // of waldo
	Config      string           // --config
	State       string           // --state
	Trusted     string           // --trusted-config
	Environment string           // --environment
	Delegation  Token            // --delegation
	JSON        bool             // --json
	Redact      bool             // --redact: redact terminal output as for the model
	Hosted      bool             // an agent host started this process, in an arbitrary folder
	Known       *redact.Registry // all fetched secrets; nil: the application creates a registry
	Openers     []app.Opener     // of the features
	Tools       []app.Toolbox    // of the features
	Lines       records.Lines    // of waldo log, for records of the features
	Profiles    []string         // that waldo init --like takes
	LogCommands []*cobra.Command // of the features, below waldo log
	Evidence    Evidence         // of the feature that has a tree over the log; nil: none
}

// Evidence is what a feature knows of the log beside its lines.
type Evidence interface {
	// Check holds the log against what was signed of it.
	Check(ctx context.Context, s *database.Store, cfg *contract.Config, bucket bool) []audit.Finding
	// Receipt verifies receipts of records against a policy, and prints them.
	Receipt(w io.Writer, files []string, policy string, asJSON bool) error
}

// Source returns how the flags name the configuration.
func (c *Context) Source() configfile.Source {
	return configfile.Source{Config: c.Config, State: c.State, Trusted: c.Trusted, Environment: c.Environment, Hosted: c.Hosted,
		Say: func(text string) {
			display.Fprintf(os.Stderr, "waldo: %s\n", text)
		}}
}

// Configured opens the state directory and loads the configuration in force, for a command that needs no more of waldo.
func (c *Context) Configured() (state string, cfg *contract.Config, err error) {
	if state, err = c.StateDir(); err != nil {
		return "", nil, err
	}
	cfg, err = c.Source().Load(state)
	return state, cfg, err
}

// StateDir creates and checks the state directory, and returns its path.
func (c *Context) StateDir() (string, error) { return app.StateDir(c.State) }

// OpenStorage opens the state directory for a command that needs no more of waldo. The caller closes it.
func (c *Context) OpenStorage() (*app.Storage, error) {
	state, err := c.StateDir()
	if err != nil {
		return nil, err
	}
	return app.OpenStorage(state)
}

// OpenRecorded opens the state directory with the log. The caller closes it.
func (c *Context) OpenRecorded(ctx context.Context) (*app.Storage, error) {
	state, err := c.StateDir()
	if err != nil {
		return nil, err
	}
	return app.OpenRecorded(ctx, state, 0)
}

// Open opens the application with the flags of every command. The caller closes it.
func (c *Context) Open(ctx context.Context, o app.Options) (*app.App, error) {
	o.State, o.Source, o.Known, o.Redact, o.Version = c.State, c.Source(), c.Known, c.Redact, c.Version
	o.Delegation = c.Delegation.Named()
	o.Passphrase, o.Progress, o.Openers, o.Tools = Passphrase(), Downloads, c.Openers, c.Tools
	return app.New(ctx, o)
}

// ForQuestions is Configured for a command about questions, which works in every folder.
func (c *Context) ForQuestions() (state string, cfg *contract.Config, err error) {
	if state, err = c.StateDir(); err != nil {
		return "", nil, err
	}
	cfg, err = c.Source().LoadForQuestions(state)
	return state, cfg, err
}

// OpenApprovals opens the approval service without the rest of the application. The caller calls done.
func (c *Context) OpenApprovals() (k *approval.Service, done func() error, err error) {
	state, cfg, err := c.ForQuestions()
	if err != nil {
		return nil, nil, err
	}
	return app.Approvals(state, cfg)
}

// Downloads shows on a terminal how much of a download is done.
func Downloads(what string, bytes int64) io.WriteCloser {
	return terminal.Progress(os.Stderr, what, bytes)
}

// Passphrase returns a function that asks a person at the terminal for the passphrases of sealed files; nil: the
// standard input is not a terminal.
func Passphrase() func(what string) (secret.Value, error) {
	if term.IsTerminal(int(os.Stdin.Fd())) {
		return terminal.AskOnce()
	}
	return nil
}
