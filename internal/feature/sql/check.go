package sql

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"waldo/internal/app"
	"waldo/internal/core/policy"
	"waldo/internal/feature/sql/sqlite"
	"waldo/internal/model/contract"
	"waldo/internal/sandbox"
)

// patience bounds the examination of one database.
const patience = 5 * time.Second

// check examines the database of each sql contract: problems are privileges beyond reading, warnings are databases
// that cannot be examined now. It fetches no secret that a command prints, because the configuration need not be
// trusted yet.
func check(ctx context.Context, place app.Place, _ *policy.Policy) (problems, warnings contract.Problems) {
	return examine(ctx, place, place.Config.Contracts)
}

func examine(ctx context.Context, place app.Place, all []contract.Contract) (problems, warnings contract.Problems) {
	b := Databases{Secret: place.Secret}
	var seen []string
	for _, c := range all {
		if c.Database == "" || slices.Contains(seen, c.Database) {
			continue
		}
		seen = append(seen, c.Database)
		at := c.Keys["url"]
		if s, ok := place.Config.Secrets[c.Database]; ok && len(s.Spec.Command) > 0 {
			warnings = append(warnings, contract.Problem{At: at, Code: "sql.unexamined",
				Text: "the role of this database is examined at the first call: its URL comes from a command"})
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		proof, err := b.Check(ctx, c)
		cancel()
		if err != nil {
			p := contract.Problem{At: at, Code: "sql.unexamined", Text: place.Known.Text(reason(err)),
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

// doctor examines the database of each sql contract.
func doctor(ctx context.Context, place app.Place) (out []sandbox.Ability) {
	for _, c := range place.Config.Contracts {
		if c.Database == "" {
			continue
		}
		problems, warnings := examine(ctx, place, []contract.Contract{c})
		var err error
		hint := ""
		for _, p := range slices.Concat(problems, warnings) {
			err, hint = errors.Join(err, errors.New(p.Text)), cmp.Or(hint, p.Hint)
		}
		out = append(out, place.Ability("database of "+c.Pattern, "reachable, and its role can only read", err, hint))
	}
	return out
}
