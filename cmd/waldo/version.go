package main

import (
	"cmp"
	"io"
	"runtime"
	"runtime/debug"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/storage/database"
)

// The linker sets these for a release; make build sets commit and committed.
var (
	version   = "0.1.0-dev"
	commit    = "" // of the source, abbreviated
	committed = "" // when, in RFC 3339: the same source gives the same bytes, so it is not the time of the build
)

// about is the build information of this waldo.
type about struct {
	Version   string `json:"version"`
	Commit    string `json:"commit,omitempty"`
	Committed string `json:"committed,omitempty"`
	Modified  bool   `json:"modified,omitempty"` // the source was changed after the commit
	Go        string `json:"go"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	Schema    int    `json:"schema"` // of the database; an older waldo refuses it
}

func thisBuild() about {
	a := about{
		Version: version, Commit: commit, Committed: committed, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Schema: database.Schema(),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return a
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			a.Commit = cmp.Or(a.Commit, s.Value[:min(12, len(s.Value))])
		case "vcs.time":
			a.Committed = cmp.Or(a.Committed, s.Value)
		case "vcs.modified":
			a.Modified = s.Value == "true"
		}
	}
	return a
}

func tellVersion(w io.Writer, asJSON bool) error {
	a := thisBuild()
	if asJSON {
		return terminal.JSON(w, a)
	}
	from := "commit unknown"
	if a.Commit != "" {
		from = "commit " + a.Commit
	}
	if a.Committed != "" {
		from += " of " + a.Committed
	}
	if a.Modified {
		from += ", modified"
	}
	display.Fprintf(w, "waldo %s (%s; %s, %s/%s)\n", a.Version, from, a.Go, a.OS, a.Arch)
	return nil
}

func newVersion(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version, the commit and its date", Args: cobra.NoArgs,
		Example: "  waldo version\n  waldo version --json",
		RunE:    func(c *cobra.Command, _ []string) error { return tellVersion(c.OutOrStdout(), g.JSON) },
	}
}
