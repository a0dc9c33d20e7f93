// Package sql carries out sql.query and sql.schema: one question to the database that the contract names. A PostgreSQL
// database is asked through a role that can only read, which every call proves; an SQLite file is opened read-only.
package sql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"waldo/internal/budget"
	"waldo/internal/core/policy"
	"waldo/internal/executor/admit"
	"waldo/internal/executor/direct"
	"waldo/internal/executor/preview"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/feature/sql/answer"
	"waldo/internal/feature/sql/postgres"
	"waldo/internal/feature/sql/sqlite"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
	"waldo/internal/protocol/strictjson"
)

// Bounds of one answer. Rows beyond the contract's response budget go to the workspace, as with every tool.
const (
	usualRows = 1000
	MaxRows   = 10_000
	MaxBytes  = 8 << 20 // of values, as JSON
	MaxValues = 50_000
	maxQuery  = 256 << 10
)

// Databases finds the database of a contract.
type Databases struct {
	Secret    func(secret.Ref) (secret.Value, error) // fetches the URL at each call
	Work      *budget.Gate                           // waldo's own memory for answers
	Questions *admit.Questions                       // processes that read SQLite files
	Machine   files.Machine                          // finds the folder of an SQLite file where it was
}

// place is where a contract's database is: one of both.
type place struct {
	postgres *pgconn.Config
	file     string
}

// at returns the database of a contract.
func (b Databases) at(c contract.Contract) (place, error) {
	if c.Database == "" {
		return place{}, errors.New("the contract names no database: it needs url")
	}
	if file, ok := contract.SQLiteFile(c.Database); ok {
		dir, err := b.Machine.Resolve(c.Keys["url"], filepath.Dir(file))
		return place{file: filepath.Join(dir, filepath.Base(file))}, err
	}
	v, err := b.Secret(secret.Ref(c.Database))
	if err != nil {
		return place{}, fmt.Errorf("the secret %s cannot be had: %w", c.Database, err)
	}
	cfg, err := postgres.ParseURL(v.Reveal())
	return place{postgres: cfg}, err
}

// Check examines the database of a contract: which rights beyond reading a role has, or why that cannot be known.
func (b Databases) Check(ctx context.Context, c contract.Contract) (postgres.Proof, error) {
	p, err := b.at(c)
	if err != nil {
		return postgres.Proof{}, err
	}
	if p.postgres == nil {
		return postgres.Proof{}, sqlite.Check(p.file)
	}
	return postgres.Prove(ctx, p.postgres)
}

// Tools returns the tools of databases.
func (b Databases) Tools() []direct.Tool {
	query := call.Define("sql.query", "Query a database",
		"Run one SQL query against the operator's database and get its rows. It can only read: SELECT, WITH, VALUES, TABLE, "+
			"EXPLAIN without ANALYZE, SHOW. Write values as $1, $2 … (in SQLite ?) and give them as params. sql.schema lists the tables.",
		`{"type":"object","properties":{`+
			`"sql":{"type":"string","maxLength":`+strconv.Itoa(maxQuery)+`,"description":"One statement."},`+
			`"params":{"type":"array","maxItems":1000,"items":{"type":["string","number","boolean","null"]},`+
			`"description":"The values of $1, $2 and so on."},`+
			`"max_rows":{"type":"integer","minimum":1,"maximum":`+strconv.Itoa(MaxRows)+
			`,"description":"`+strconv.Itoa(usualRows)+` by default."}},"required":["sql"],"additionalProperties":false}`)
	query.Output = schema(`{"type":"object","properties":{"columns":{"type":"array","items":{"type":"object","properties":` +
		`{"name":{"type":"string"},"type":{"type":"string"}},"required":["name","type"]}},"rows":{"type":"array","items":` +
		`{"type":"array"}},"cut":{"type":"string","description":"rows, values or bytes: the limit at which the answer ends early"}},` +
		`"required":["columns","rows"]}`)
	describe := call.Define("sql.schema", "Describe a database",
		"List the tables and views of the operator's database that can be read, with columns, types, keys and comments.",
		`{"type":"object","properties":{"table":{"type":"string","maxLength":200,"description":`+
			`"Only tables whose name, with its schema, contains this."}},"additionalProperties":false}`)
	describe.Output = schema(`{"type":"object","properties":{"tables":{"type":"array","items":{"type":"object"}},` +
		`"cut":{"type":"boolean"}},"required":["tables"]}`)
	return []direct.Tool{{Tool: query, Run: b.query, Preview: preview.Query}, {Tool: describe, Run: b.describe}}
}

func schema(text string) strictjson.Value {
	v, err := strictjson.Parse([]byte(text))
	if err != nil {
		panic(err) // our own text
	}
	return v
}

// shown is an answer of a database.
type shown interface {
	Structured() (strictjson.Value, error)
	Show(ctx context.Context) (string, error)
}

func (b Databases) query(ctx context.Context, d policy.Decision) (call.Outcome, error) {
	a := d.Call.Args.Values()
	text, _ := a["sql"].(string)
	arguments, _ := a["params"].([]any)
	limits := answer.Limits{Rows: usualRows, Bytes: MaxBytes, Values: MaxValues}
	if n, ok := a["max_rows"].(float64); ok {
		limits.Rows = min(max(int(n), 1), MaxRows)
	}
	if strings.TrimSpace(text) == "" || len(text) > maxQuery {
		return direct.Refuse(call.Reason{Code: "sql.arguments",
			Text: fmt.Sprintf("sql must be a statement of at most %d bytes", maxQuery)}), nil
	}
	return b.ask(ctx, d, func(p place, room *budget.Lease) (shown, error) {
		if p.postgres != nil {
			return postgres.Query(ctx, p.postgres, text, arguments, d.Contract.Timeout, limits, room)
		}
		return sqlite.Query(ctx, p.file, text, arguments, limits, room)
	})
}

func (b Databases) describe(ctx context.Context, d policy.Decision) (call.Outcome, error) {
	part, _ := d.Call.Args.Values()["table"].(string)
	return b.ask(ctx, d, func(p place, room *budget.Lease) (shown, error) {
		if p.postgres != nil {
			return postgres.Describe(ctx, p.postgres, part, d.Contract.Timeout)
		}
		return sqlite.Describe(ctx, p.file, part, room)
	})
}

// ask finds the database, asks it, and makes the outcome. No call has a side effect: the transaction is rolled back.
func (b Databases) ask(
	ctx context.Context, d policy.Decision, question func(place, *budget.Lease) (shown, error),
) (call.Outcome, error) {
	p, err := b.at(d.Contract)
	if err != nil {
		slog.Error("a database cannot be had", "capability", string(d.Call.Capability), "why", err)
		return direct.Refuse(call.Reason{Code: "sql.url", Text: "the operator's database cannot be had; `waldo check` says why"}), nil
	}
	begun, room := time.Now(), b.Work.Lease(string(d.Call.Principal))
	out, err := b.answered(ctx, d, p, room, question)
	if err != nil {
		_ = room.Close() // never fails
		out = failed(d, err)
	}
	out.Facts.Usage.WallMS = facts.MS(time.Since(begun))
	if p.postgres != nil {
		at := net.JoinHostPort(p.postgres.Host, strconv.Itoa(int(p.postgres.Port)))
		out.Facts.Network.Policy, out.Facts.Network.AllowedHosts = "allowed", []string{at}
		out.Facts.Network.Contacted = []string{at}
	} else {
		out.Facts.Files.Read = []string{p.file}
	}
	return out, nil
}

// answered asks a database and shows its answer. The outcome holds room.
func (b Databases) answered(
	ctx context.Context, d policy.Decision, p place, room *budget.Lease, question func(place, *budget.Lease) (shown, error),
) (out call.Outcome, err error) {
	if p.postgres == nil {
		leave, why := b.Questions.Enter(ctx, d.Call.Principal)
		if why != nil {
			return out, &answer.Error{Code: why.Code, Text: why.Text}
		}
		defer leave()
	}
	if err := room.Cover(ctx, answer.Memory(answer.Part)); err != nil {
		return out, err
	}
	got, err := question(p, room)
	if err != nil {
		return out, err
	}
	text, err := got.Show(ctx)
	if err != nil {
		return out, err
	}
	out = direct.Done(facts.None, call.Text(text))
	out.Held = room
	out.Structured, err = got.Structured()
	return out, err
}

// failed is the outcome of a question without an answer. The database's own message is for the agent: it says what
// the statement lacks. The connection's error is for the operator alone.
func failed(d policy.Decision, err error) call.Outcome {
	if full := (*budget.Full)(nil); errors.As(err, &full) {
		return direct.Refuse(*admit.NoMemory(err))
	}
	if e := (*answer.Error)(nil); errors.As(err, &e) {
		return direct.Refuse(call.Reason{Code: e.Code, Text: e.Text})
	}
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) && !errors.As(err, new(*pgconn.ConnectError)) {
		text := fmt.Sprintf("PostgreSQL: %s (%s)", e.Message, e.Code)
		if e.Position > 0 {
			text += fmt.Sprintf(", at character %d", e.Position)
		}
		if e.Hint != "" {
			text += ". " + e.Hint
		}
		return direct.Fail(facts.None, text)
	}
	if e := sqlite.Message(err); e != "" {
		return direct.Fail(facts.None, "SQLite: "+e)
	}
	if errors.Is(err, context.DeadlineExceeded) && !errors.As(err, new(*pgconn.ConnectError)) {
		return direct.Fail(facts.None, fmt.Sprintf("the query was ended at its time limit of %s; narrow it, or the "+
			"operator raises timeout", d.Contract.Timeout))
	}
	slog.Error("a database does not answer", "capability", string(d.Call.Capability), "why", err)
	return direct.Fail(facts.None, "the operator's database does not answer; `waldo check` says why")
}
