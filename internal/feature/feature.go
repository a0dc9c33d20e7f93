// Package feature declares what a folder below internal/feature brings to waldo. main lists the features; a feature
// imports the kernel and no other feature.
package feature

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/cli/records"
	"waldo/internal/core/policy"
	"waldo/internal/model/contract"
	"waldo/internal/sandbox"
)

// Feature is what a folder brings. Every field may be empty.
type Feature struct {
	Name     string
	Open     app.Opener                                         // routes, carriers, sweeps: for each configuration
	Commands func(*cli.Context) []*cobra.Command                // of the command line
	Tools    app.Toolbox                                        // waldo's own, without a sandbox
	Check    Check                                              // of waldo check
	Child    func()                                             // does not return in a process that the feature started
	Doctor   func(context.Context, app.Place) []sandbox.Ability // checks of waldo doctor
	Examine  Examine                                            // flags of waldo doctor, and the checks behind them
	Next     func(w io.Writer, folder string)                   // lines that waldo init ends with
	Profiles func() []string                                    // names that waldo init --like takes
	Start    Start                                              // of one of these names
	Log      func(*cli.Context) []*cobra.Command                // commands below waldo log
	Evidence cli.Evidence                                       // checks of waldo log verify
	Records  records.Lines                                      // kinds of records that it writes to the log
}

// Examine adds flags to waldo doctor. The result runs the checks that they ask for; no report: none was asked for. An
// error ends the command.
type Examine func(doctor *cobra.Command) func(context.Context) ([]sandbox.Report, error)

// Start returns the text of waldo.yaml for a folder, and the command that comes after trusting it.
type Start func(profile, folder string) (text []byte, next string, err error)

// Check examines a configuration for waldo check, which need not be trusted yet. p is its policy.
type Check func(ctx context.Context, place app.Place, p *policy.Policy) (problems, warnings contract.Problems)
