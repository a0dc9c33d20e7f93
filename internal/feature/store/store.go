// Package store is waldo store: where the rows of a state directory are, and how they come into PostgreSQL.
package store

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/fault"
	"waldo/internal/cli"
	"waldo/internal/feature"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/sandbox"
	"waldo/internal/storage/database"
	"waldo/internal/storage/presence"
)

// Feature is waldo store.
var Feature = feature.Feature{
	Name: "store",
	Commands: func(g *cli.Context) []*cobra.Command {
		c := &cobra.Command{Use: "store", Short: "Keep the state's rows in PostgreSQL",
			Long:    "Without PostgreSQL the rows of a state directory are in its waldo.db. docs/scale.md says what hosts share.",
			Example: "  waldo store migrate postgres://waldo@db.example.com/waldo",
			RunE:    func(c *cobra.Command, _ []string) error { return c.Help() }}
		c.AddCommand(newMigrate(g), newCopy(g))
		return []*cobra.Command{c}
	},
	Doctor: doctor,
	Open:   open,
}

const durable = "set fsync = on and full_page_writes = on in postgresql.conf, and restart the server"

// open says once, while waldo serves, that the database loses writes.
func open(h *app.App) (app.Running, error) {
	return app.Running{Work: func(ctx context.Context) {
		if err := h.Store.Lasting(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("the database", "why", err, "hint", durable)
		}
	}}, nil
}

// doctor checks whether a shared database can be reached, and waits for its disk.
func doctor(ctx context.Context, place app.Place) []sandbox.Ability {
	s, err := database.Open(place.State)
	if err == nil && !s.Shared() {
		return nil
	}
	hint := "docs/scale.md has the set-up"
	if err == nil {
		defer func() { _ = s.Close() }()
		if err = s.Lasting(ctx); errors.Is(err, database.ErrVolatile) {
			hint = durable
		}
	}
	keyed := place.Config != nil && (place.Config.StoreKey != "" || place.Config.Workers != nil)
	return []sandbox.Ability{place.Ability("store", "the database answers, and its commits wait for the disk", err, hint),
		{Name: "store.key", OK: keyed, What: "rows of other hosts, and of tasks, are marked with a key",
			Hint: "without it waldo believes who can write to the database: store: {key: …}, as in docs/scale.md"}}
}

// target returns the state directory and the URL that is meant: the argument, that of the state directory, or that of
// waldo.yaml.
func target(g *cli.Context, args []string) (state, url string, err error) {
	if state, err = g.StateDir(); err != nil {
		return "", "", err
	}
	if len(args) == 1 {
		return state, args[0], nil
	}
	s, err := database.Open(state)
	if err != nil {
		return "", "", err
	}
	if err := s.Close(); err != nil {
		return "", "", err
	}
	if s.Shared() {
		return state, s.URL(), nil
	}
	_, cfg, err := g.Configured()
	if err != nil {
		return "", "", err
	}
	if cfg.Store == "" || cfg.Store == database.SQLite {
		return "", "", fault.Usage("as in postgres://waldo@db.example.com/waldo",
			"name the URL of the database, or write store: {url: …} in waldo.yaml")
	}
	return state, cfg.Store, nil
}

func newMigrate(g *cli.Context) *cobra.Command {
	var restored bool
	c := &cobra.Command{
		Use: "migrate [URL]", Short: "Bring the tables of a database up to date, and bind the state directory to it",
		Args: cobra.MaximumNArgs(1),
		Long: "Binds an empty state directory to a PostgreSQL database for good. Later, after an upgrade of waldo, it brings the\n" +
			"schema up to date; other commands refuse an older one. The URL holds no password: PGPASSWORD or PGPASSFILE does.",
		Example: "  waldo store migrate postgres://waldo@db.example.com/waldo\n  waldo store migrate",
		RunE: func(c *cobra.Command, args []string) error {
			state, url, err := target(g, args)
			if err != nil {
				return err
			}
			from, to, err := database.Migrate(c.Context(), state, url)
			if err != nil {
				return fault.Usage("docs/scale.md shows each step", "%v", err)
			}
			if restored {
				if err := database.Restored(state); err != nil {
					return err
				}
			}
			if g.JSON {
				return terminal.JSON(c.OutOrStdout(), map[string]any{"url": url, "from": from, "to": to, "restored": restored})
			}
			display.Fprintf(c.OutOrStdout(), "%s: schema %d to %d\n", url, from, to)
			return nil
		},
	}
	c.Flags().BoolVar(&restored, "restored", false,
		"accept a database that is older than what this state directory stored in it")
	return c
}

func newCopy(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "copy [URL]", Short: "Move the rows of waldo.db to an empty PostgreSQL database", Args: cobra.MaximumNArgs(1),
		Long: "Copies each table, compares the number and a digest of the rows in both, and binds the state directory to the\n" +
			"database. It refuses a database with rows, and while a waldo runs. The old file stays as waldo.db.copied.",
		Example: "  waldo store copy postgres://waldo@db.example.com/waldo",
		RunE: func(c *cobra.Command, args []string) error {
			state, url, err := target(g, args)
			if err != nil {
				return err
			}
			if err := idle(c, state); err != nil {
				return err
			}
			all, err := database.CopyToPostgres(c.Context(), state, url)
			if err != nil {
				return fault.Usage("docs/scale.md shows each step", "%v", err)
			}
			if g.JSON {
				return terminal.JSON(c.OutOrStdout(), map[string]any{"url": url, "tables": all})
			}
			for _, t := range all {
				display.Fprintf(c.OutOrStdout(), "%-14s %7d rows  %s\n", t.Table, t.Rows, t.Digest)
			}
			display.Fprintf(c.OutOrStdout(), "%s now has its rows in %s; the old ones stay in %s\n", state, url,
				database.CopiedFile)
			return nil
		},
	}
}

// idle returns an error while a waldo is at work on a state directory.
func idle(c *cobra.Command, state string) error {
	s, err := database.Open(state)
	if err != nil {
		return err
	}
	defer s.Close()
	all, err := presence.All(c.Context(), s)
	gone := presence.Gone(s)
	for _, name := range all {
		if !gone(name) {
			return errors.Join(err, fault.Usage("end it, and run the command again", "a waldo is at work on %s", state))
		}
	}
	return err
}
