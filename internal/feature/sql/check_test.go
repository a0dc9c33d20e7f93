package sql

import (
	"errors"
	"path/filepath"
	"testing"

	"waldo/internal/app"
	"waldo/internal/app/secrets"
	"waldo/internal/core/redact"
	"waldo/internal/feature/sql/postgres"
	"waldo/internal/feature/sql/sqlite"
	"waldo/internal/model/contract"
)

// A database that cannot be examined: the reason is in the one line that is shown.
func TestReason(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"no such variable", "no such variable"},
		{"failed to connect to `user=r database=d`:\n\t[::1]:1 (localhost): refused\n\t127.0.0.1:1 (localhost): refused",
			"failed to connect to `user=r database=d`: [::1]:1 (localhost): refused; 127.0.0.1:1 (localhost): refused"},
	} {
		if got := reason(errors.New(row.text)); got != row.want {
			t.Errorf("reason %q, want %q", got, row.want)
		}
	}
	if got := reason(&sqlite.Error{Code: "sql.file", Text: "no such file"}); got != "no such file" {
		t.Errorf("the code stands twice: %q", got)
	}
}

func TestCheckNoFile(t *testing.T) {
	at := contract.Position{File: filepath.Join(t.TempDir(), "waldo.yaml")}
	cfg := &contract.Config{Contracts: []contract.Contract{{Database: "sqlite:./none.db",
		Keys: map[string]contract.Position{"url": at}}}}
	problems, warnings := check(t.Context(), placeOf(t, cfg), nil)
	const want = "the database none.db cannot be opened: no such file"
	if len(problems) != 0 || len(warnings) != 1 || warnings[0].Code != "sql.file" || warnings[0].Text != want {
		t.Errorf("%v %v", problems, warnings)
	}
	cfg.Contracts = append(cfg.Contracts, contract.Contract{Pattern: "a"})
	if all := doctor(t.Context(), placeOf(t, cfg)); len(all) != 1 || all[0].OK || all[0].What != want || all[0].Hint == "" {
		t.Errorf("%+v", all)
	}
}

// The statement that takes a superuser's attribute away could lock out the administrators.
func TestHint(t *testing.T) {
	const other = "use another role in url: waldo sql bootstrap makes one that can only read"
	insert := postgres.Finding{Privilege: "INSERT", Fix: "REVOKE INSERT ON TABLE a FROM r"}
	for _, row := range []struct{ with, want string }{{"SUPERUSER", other}, {"ownership", other}, {"UPDATE", insert.Fix}} {
		with := postgres.Finding{Privilege: row.with, Fix: "ALTER ROLE postgres NOSUPERUSER"}
		p := postgres.Proof{Findings: []postgres.Finding{with, insert}}
		if got := p.Hint(insert); got != row.want {
			t.Errorf("with %s: %q, want %q", row.with, got, row.want)
		}
	}
}

func placeOf(t *testing.T, cfg *contract.Config) app.Place {
	t.Helper()
	state, known := t.TempDir(), &redact.Registry{}
	return app.Place{State: state, Config: cfg, Known: known, Secret: secrets.New(state, cfg, known, nil).Get}
}
