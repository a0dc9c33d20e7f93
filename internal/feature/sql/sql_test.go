package sql

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/budget"
	"waldo/internal/core/policy"
	"waldo/internal/executor/admit"
	"waldo/internal/executor/direct"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/feature/sql/sqlite"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
	"waldo/internal/storage/database"
)

// A query that is too slow says so: the database did answer.
func TestSlow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	query := tools(bounded())["sql.query"]
	out, err := query.Run(ctx, decided(t, "sql.query", "sqlite:./waldo.db",
		`{"sql": "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM t) SELECT count(*) FROM t"}`))
	const want = "the query was ended at its time limit of 10s"
	if err != nil || !out.IsError || !strings.HasPrefix(out.Content[0].Text, want) {
		t.Errorf("a slow query: %v %v", out.Content, err)
	}
}

// TestFileOfAnotherFolder: a database whose folder leads elsewhere than when the configuration was loaded is refused.
func TestFileOfAnotherFolder(t *testing.T) {
	data := filepath.Join(dir, "data")
	if err := os.Symlink(dir, data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(data) })
	d := decided(t, "sql.query", "sqlite:./data/waldo.db", `{"sql": "SELECT 1"}`)
	cfg := &contract.Config{File: d.Contract.Keys["url"].File, Contracts: []contract.Contract{d.Contract}}
	cfg.Places = files.Places(cfg)
	b := bounded()
	b.Machine = files.Here("").For(cfg)
	if out, err := tools(b)["sql.query"].Run(t.Context(), d); err != nil || out.IsError {
		t.Errorf("control: %v %v", out.Content, err)
	}
	if err := errors.Join(os.Remove(data), os.Symlink(t.TempDir(), data)); err != nil {
		t.Fatal(err)
	}
	out, err := tools(b)["sql.query"].Run(t.Context(), d)
	if err != nil || out.Refused == nil || out.Refused.Code != "sql.url" {
		t.Errorf("the database of another folder is asked: %+v %v", out, err)
	}
}

func decided(t *testing.T, name call.Capability, url, arguments string) policy.Decision {
	t.Helper()
	args, err := call.ParseArgs([]byte(arguments))
	if err != nil {
		t.Fatal(err)
	}
	return policy.Decision{Call: call.Call{Capability: name, Args: args}, Contract: contract.Contract{
		Transport: contract.Direct, Timeout: 10 * time.Second, Database: url,
		Keys: map[string]contract.Position{"url": {File: filepath.Join(dir, "waldo.yaml")}},
	}}
}

var dir string

func TestMain(m *testing.M) {
	sqlite.Main()
	var err error
	if dir, err = os.MkdirTemp("", "waldo-sql-"); err != nil {
		panic(err)
	}
	s, err := database.Open(dir) // any SQLite file
	if err != nil {
		panic(err)
	}
	err = s.Put(context.Background(), "test", "a", "b")
	if err = errors.Join(err, s.Close()); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// bounded has the bounds of a waldo.
func bounded() Databases {
	sandboxes := budget.New(budget.Limits{Memory: 8 << 30, Each: 16, Wait: time.Millisecond})
	return Databases{Work: admit.Own(), Questions: admit.NewQuestions(sandboxes)}
}

func tools(b Databases) map[call.Capability]direct.Tool {
	out := map[call.Capability]direct.Tool{}
	for _, t := range b.Tools() {
		out[t.Capability] = t
	}
	return out
}

func TestTools(t *testing.T) {
	const password = "the-password-of-the-role"
	b := bounded()
	b.Secret = func(r secret.Ref) (secret.Value, error) {
		switch r {
		case "env:NEAR":
			return secret.NewValue("postgres://r:" + password + "@127.0.0.1:1/d"), nil
		case "env:BAD":
			return secret.NewValue("mysql://r:" + password + "@h/d"), nil
		}
		return secret.Value{}, errors.New("no such variable")
	}
	for _, row := range []struct{ why, name, url, arguments, code, text string }{
		{"a query of a file", "sql.query", "sqlite:./waldo.db", `{"sql": "SELECT 1 AS one, ? AS two", "params": ["x"]}`, "", "one | two\n1 | x\n(1 row)"},
		{"the schema of a file", "sql.schema", "sqlite:waldo.db", `{"table": "no such table"}`, "", "(no table that this role may read)"},
		{"a write to a file", "sql.query", "sqlite:./waldo.db", `{"sql": "CREATE TABLE t (i)"}`, "sql.statement", ""},
		{"an error of SQLite", "sql.query", "sqlite:./waldo.db", `{"sql": "SELEC"}`, "failed", "SQLite: SQL logic error"},
		{"no file", "sql.query", "sqlite:./none.db", `{"sql": "SELECT 1"}`, "sql.file", ""},
		{"no url", "sql.query", "", `{"sql": "SELECT 1"}`, "sql.url", ""},
		{"no secret", "sql.query", "env:NONE", `{"sql": "SELECT 1"}`, "sql.url", ""},
		{"another database", "sql.query", "env:BAD", `{"sql": "SELECT 1"}`, "sql.url", ""},
		{"nobody listens", "sql.query", "env:NEAR", `{"sql": "SELECT 1"}`, "failed", "the operator's database does not answer"},
		{"no statement", "sql.query", "sqlite:./waldo.db", `{"sql": "  "}`, "sql.arguments", ""},
		{"a long statement", "sql.query", "sqlite:./waldo.db", `{"sql": "` + strings.Repeat("x", maxQuery+1) + `"}`, "sql.arguments", ""},
	} {
		tool := tools(b)[call.Capability(row.name)]
		out, err := tool.Run(context.Background(), decided(t, tool.Capability, row.url, row.arguments))
		if err != nil {
			t.Fatal(row.why, err)
		}
		got := ""
		switch {
		case out.Refused != nil:
			got = out.Refused.Code
		case out.IsError:
			got = "failed"
		}
		if got != row.code || !strings.HasPrefix(out.Content[0].Text, row.text) {
			t.Errorf("%s: %q %q", row.why, got, out.Content[0].Text)
		}
		if strings.Contains(out.Content[0].Text, password) || strings.Contains(out.Content[0].Text, "no such variable") {
			t.Errorf("%s: %q", row.why, out.Content[0].Text)
		}
		if out.Facts.SideEffect != facts.None || out.Trust != call.Untrusted {
			t.Errorf("%s: side effect %v, trust %v", row.why, out.Facts.SideEffect, out.Trust)
		}
		if got == "" && out.Structured.IsZero() {
			t.Errorf("%s: no structured content", row.why)
		}
	}
}

// TestAWideAnswer: an answer ends at its number of values, however few bytes they have, and its call goes on.
func TestAWideAnswer(t *testing.T) {
	wide := "with recursive c(x) as (select 1 union all select x+1 from c limit 10000) select " +
		strings.Repeat("1,", 999) + "1 from c"
	out, err := tools(bounded())["sql.query"].Run(t.Context(),
		decided(t, "sql.query", "sqlite:./waldo.db", `{"max_rows": 10000, "sql": "`+wide+`"}`))
	if err != nil || out.IsError {
		t.Fatal(out.Content, err)
	}
	defer out.Release()
	if cut, _ := out.Structured.Member("cut").Text(); cut != "values" {
		t.Errorf("it was cut by %q", cut)
	}
	var rows []any
	if err := out.Structured.Member("rows").Decode(&rows); err != nil || len(rows) != MaxValues/1000 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

// TestNoRoomForAQuestion: a question waits for waldo's memory and for a process within its own time, and is then
// refused with the reason. Its answer holds memory until the result is made.
func TestNoRoomForAQuestion(t *testing.T) {
	one := decided(t, "sql.query", "sqlite:./waldo.db", `{"sql": "SELECT 1"}`)
	run := func(b Databases) call.Outcome {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		out, err := tools(b)["sql.query"].Run(ctx, one)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	b := bounded()
	b.Work = budget.New(budget.Limits{Memory: 1 << 20, Each: 10, Wait: time.Minute})
	first := run(b)
	if first.Refused != nil {
		t.Fatal("control: ", first.Refused)
	}
	if out := run(b); out.Refused == nil || out.Refused.Code != "memory.busy" {
		t.Errorf("while another answer is held: %+v", out.Refused)
	}
	first.Release()
	if out := run(b); out.Refused != nil {
		t.Errorf("control: after it: %+v", out.Refused)
	}
	b = bounded()
	one.Call.Principal = "a"
	for range 4 {
		if _, why := b.Questions.Enter(t.Context(), "a"); why != nil {
			t.Fatal("control: ", why)
		}
	}
	if out := run(b); out.Refused == nil || out.Refused.Code != "sql.busy" {
		t.Errorf("a fifth question at a time: %+v", out.Refused)
	}
	one.Call.Principal = "b"
	if out := run(b); out.Refused != nil {
		t.Errorf("control: another principal: %+v", out.Refused)
	}
	if out := run(Databases{}); out.Refused == nil || out.Refused.Code != "sql.busy" {
		t.Errorf("without bounds: %+v", out.Refused)
	}
}
