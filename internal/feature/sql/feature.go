package sql

import (
	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/executor/direct"
	"waldo/internal/feature"
	"waldo/internal/feature/sql/sqlite"
)

// Feature is the tools sql.*, and waldo sql.
var Feature = feature.Feature{
	Name:     "sql",
	Tools:    ownTools,
	Commands: func(g *cli.Context) []*cobra.Command { return []*cobra.Command{newSQL(g)} },
	Check:    check,
	Doctor:   doctor,
	Child:    sqlite.Main,
}

func ownTools(k app.Kit) []direct.Tool {
	return Databases{Secret: k.Secret, Work: k.Work, Questions: k.Questions, Machine: k.Machine}.Tools()
}
