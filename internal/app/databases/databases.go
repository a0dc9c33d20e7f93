// Package databases examines the databases of a configuration before any agent asks one.
package databases

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"waldo/internal/app/secrets"
	"waldo/internal/core/redact"
	"waldo/internal/executor/sql"
	"waldo/internal/executor/sql/sqlite"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// patience bounds the examination of one database.
const patience = 5 * time.Second

// Check examines the database of each sql contract: problems are privileges beyond reading, warnings are databases
// that cannot be examined now. It fetches no secret that a command prints, because the configuration need not be
// trusted yet.
func Check(
	ctx context.Context, state string, cfg *contract.Config, known *redact.Registry,
) (problems, warnings contract.Problems) {
	keeper := secrets.New(state, cfg, known, nil)
	b := sql.Databases{Secret: keeper.Get}
	var seen []string
	for _, c := range cfg.Contracts {
		if c.Database == "" || slices.Contains(seen, c.Database) {
			continue
		}
		seen = append(seen, c.Database)
		at := c.Keys["url"]
		if s, ok := cfg.Secrets[c.Database]; ok && len(s.Spec.Command) > 0 {
			warnings = append(warnings, contract.Problem{At: at, Code: "sql.unexamined",
				Text: "the role of this database is examined at the first call: its URL comes from a command"})
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		proof, err := b.Check(ctx, c)
		cancel()
		if err != nil {
			p := contract.Problem{At: at, Code: "sql.unexamined", Text: known.Text(reason(err)),
				Hint: "the role is examined at each call; until then nothing is known about it"}
			if _, file := contract.SQLiteFile(c.Database); file {
				p.Code, p.Hint = "sql.file", "calls are refused until it is there"
			}
			warnings = append(warnings, p)
			continue
		}
		for _, f := range proof.Findings {
			problems = append(problems, contract.Problem{At: at, Code: "sql.role",
				Text: "the database role " + proof.Role + " can do more than read: " + f.String(), Hint: proof.Hint(f)})
		}
	}
	return problems, warnings
}

// reason is the text of an error in one line. A connection's error has a line for each address that was tried.
func reason(err error) string {
	if e := (*sqlite.Error)(nil); errors.As(err, &e) {
		return e.Text
	}
	var one strings.Builder
	for line := range strings.Lines(err.Error()) {
		if s := one.String(); strings.HasSuffix(s, ":") {
			one.WriteByte(' ')
		} else if s != "" {
			one.WriteString("; ")
		}
		one.WriteString(strings.TrimSpace(line))
	}
	return contract.Cut(one.String(), 400)
}

// Secret returns the value of a place such as env:NAME for a command of the operator's.
func Secret(state string, known *redact.Registry, ref string) (secret.Value, error) {
	return secrets.New(state, &contract.Config{}, known, nil).Get(secret.Ref(ref))
}
