// Package sqlite asks one SQLite file one question at a time. The file is opened read-only, and SQLite's authorizer
// permits reading alone: no ATTACH, no extension, no PRAGMA that changes something.
package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"waldo/internal/feature/sql/answer"
)

// Error is a refusal of waldo's own: the statement did not run.
type Error = answer.Error

func refuse(code, format string, a ...any) *Error { return answer.Refuse(code, format, a...) }

// maxValue is the largest value and the longest statement, in bytes.
const maxValue = 16 << 20

// Check says why a file is not opened: it must be a regular file of SQLite's, and no link, so that what can write in
// its folder cannot put another database in its place by name alone.
func Check(path string) error {
	_, err := inspect(path)
	return err
}

// inspect returns how a file is opened. Opening writes neither the file nor files beside it.
func inspect(path string) (options url.Values, err error) {
	st, err := os.Lstat(path)
	if err != nil {
		return nil, refuse("file", "the database %s cannot be opened: no such file", filepath.Base(path))
	}
	if !st.Mode().IsRegular() {
		return nil, refuse("file", "the database %s must be a regular file, and no link", filepath.Base(path))
	}
	head := make([]byte, 20)
	f, err := os.Open(path)
	if err != nil {
		return nil, refuse("file", "the database %s cannot be opened", filepath.Base(path))
	}
	_, err = io.ReadFull(f, head)
	_ = f.Close() // it was only read
	if err != nil || string(head[:16]) != "SQLite format 3\x00" {
		return nil, refuse("file", "%s is not an SQLite database", filepath.Base(path))
	}
	options = url.Values{"mode": {"ro"}, "_pragma": {"query_only(1)", "trusted_schema(0)", "temp_store(2)", "cell_size_check(1)"}}
	if head[19] != 2 { // a rollback journal; SQLite's locks suffice
		return options, nil
	}
	// In WAL mode SQLite makes files beside the database, even for reading.
	if log, err := os.Lstat(path + "-wal"); err != nil || log.Size() == 0 {
		options.Set("immutable", "1") // every change is in the file itself
	} else {
		options.Set("readonly_shm", "1")
	}
	return options, nil
}

// open opens the file. The caller closes both.
func open(ctx context.Context, path string) (*sql.DB, *sql.Conn, error) {
	options, err := inspect(path)
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()+"?"+options.Encode())
	if err != nil {
		return nil, nil, err
	}
	c, err := db.Conn(ctx)
	if err == nil {
		err = confine(c)
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, c, nil
}

// confine sets the authorizer and the limits of a connection.
func confine(c *sql.Conn) error {
	for id, most := range map[int]int{
		lib.SQLITE_LIMIT_ATTACHED: 0, lib.SQLITE_LIMIT_LENGTH: maxValue, lib.SQLITE_LIMIT_SQL_LENGTH: 1 << 20,
		lib.SQLITE_LIMIT_EXPR_DEPTH: 200, lib.SQLITE_LIMIT_WORKER_THREADS: 0, lib.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
	} {
		if _, err := driver.Limit(c, id, most); err != nil {
			return err
		}
	}
	return c.Raw(func(raw any) error {
		r, ok := raw.(driver.AuthorizerRegisterer)
		if !ok {
			return errors.New("the SQLite driver has no authorizer")
		}
		return r.RegisterAuthorizer(authorize)
	})
}

// pragmas describe the schema. Each other PRAGMA is refused.
var pragmas = map[string]bool{
	"table_info": true, "table_xinfo": true, "table_list": true, "index_list": true, "index_info": true,
	"index_xinfo": true, "foreign_key_list": true, "collation_list": true, "function_list": true,
	"data_version": true, // of full-text tables, when they are opened
}

// outward are SQLite's functions that reach beyond the database. This build lacks most of them.
var outward = map[string]bool{
	"load_extension": true, "fts3_tokenizer": true, "readfile": true, "writefile": true, "edit": true, "sqlite_log": true,
	"lsmode": true, "fsdir": true,
}

// authorize permits what reads. It is asked while a statement is compiled, for every part of it.
func authorize(action driver.AuthorizerActionCode, a, b, _, _ string) driver.AuthorizerReturnCode {
	switch action {
	case driver.AuthSelect, driver.AuthRead, driver.AuthRecursive:
		return driver.AuthorizerOK
	case driver.AuthFunction:
		if !outward[strings.ToLower(b)] {
			return driver.AuthorizerOK
		}
	case driver.AuthPragma:
		if pragmas[strings.ToLower(a)] {
			return driver.AuthorizerOK
		}
	}
	return driver.AuthorizerDeny
}

// ask runs one statement with arguments.
func ask(ctx context.Context, c *sql.Conn, query string, arguments []any, limits answer.Limits) (*answer.Rows, error) {
	for _, a := range arguments {
		switch a.(type) {
		case nil, string, float64, bool:
		default:
			return nil, refuse("arguments", "an argument is a text, a number, true, false or null")
		}
	}
	rows, err := c.QueryContext(ctx, query, arguments...)
	if err != nil {
		return nil, explain(err)
	}
	defer rows.Close()
	types, err := rows.ColumnTypes()
	if err != nil {
		return nil, explain(err)
	}
	columns := make([]answer.Column, len(types))
	for i, t := range types {
		columns[i] = answer.Column{Name: t.Name(), Type: strings.ToLower(t.DatabaseTypeName())}
	}
	out := answer.New(columns, limits)
	values, into := make([]any, len(types)), make([]any, len(types))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		row := make([]answer.Value, len(values))
		for i, v := range values {
			row[i] = value(v)
		}
		if !out.Add(row) {
			if why := out.TooLarge(); why != nil {
				return nil, why
			}
			return out, nil
		}
	}
	if err := rows.Err(); err != nil {
		return nil, explain(err)
	}
	return out, nil
}

// explain makes the authorizer's refusal a refusal of waldo's.
func explain(err error) error {
	e := (*driver.Error)(nil)
	if errors.As(err, &e) {
		switch e.Code() & 0xff {
		case lib.SQLITE_AUTH:
			return refuse("statement", "only a query of this database is run; the statement would do more")
		case lib.SQLITE_READONLY:
			return refuse("statement", "the database is open for reading only")
		}
	}
	return err
}

// value returns the JSON of a value.
func value(v any) answer.Value {
	switch v := v.(type) {
	case nil:
		return nil
	case int64:
		return answer.Integer(v)
	case float64:
		if b := strconv.AppendFloat(nil, v, 'g', -1, 64); strings.IndexByte("-0123456789", b[0]) >= 0 && string(b) != "-Inf" {
			return b
		}
		return answer.Text(strconv.FormatFloat(v, 'g', -1, 64))
	case bool:
		return strconv.AppendBool(nil, v)
	case []byte:
		return answer.Text(`\x` + hex.EncodeToString(v))
	case time.Time:
		return answer.Text(v.Format(time.RFC3339Nano))
	case string:
		return answer.Text(v)
	}
	return answer.Text(fmt.Sprint(v))
}

// describe returns the tables whose names have part in them.
func describe(ctx context.Context, c *sql.Conn, part string) (*answer.Schema, error) {
	rows, err := texts(ctx, c, "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') AND "+
		"name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND instr(lower(name), lower(?)) > 0 ORDER BY name LIMIT "+
		strconv.Itoa(answer.MaxTables+1), part)
	if err != nil {
		return nil, err
	}
	out := &answer.Schema{Tables: []answer.Relation{}}
	columns := 0
	for _, r := range rows {
		t := answer.Relation{Name: `"` + strings.ReplaceAll(r[0], `"`, `""`) + `"`, Kind: r[1]}
		fields, err := texts(ctx, c, `SELECT name, type, "notnull", pk FROM pragma_table_xinfo(?) WHERE hidden <> 1`, r[0])
		if err != nil {
			return nil, err
		}
		var primary []string
		for _, f := range fields {
			t.Columns = append(t.Columns, answer.Field{Name: f[0], Type: f[1], Required: f[2] == "1"})
			if f[3] != "0" {
				primary = append(primary, f[0])
			}
		}
		if len(primary) > 0 {
			t.Keys = append(t.Keys, "PRIMARY KEY ("+strings.Join(primary, ", ")+")")
		}
		links, err := texts(ctx, c, `SELECT "from", "table", coalesce("to", '') FROM pragma_foreign_key_list(?)`, r[0])
		if err != nil {
			return nil, err
		}
		for _, l := range links {
			t.Keys = append(t.Keys, fmt.Sprintf("FOREIGN KEY (%s) REFERENCES %s(%s)", l[0], l[1], l[2]))
		}
		if columns += len(t.Columns); len(out.Tables) == answer.MaxTables || columns > answer.MaxColumns {
			out.Cut = true
			break
		}
		out.Tables = append(out.Tables, t)
	}
	return out, nil
}

// texts returns the rows of waldo's own query as text.
func texts(ctx context.Context, c *sql.Conn, query string, arguments ...any) (out [][]string, err error) {
	rows, err := c.QueryContext(ctx, query, arguments...)
	if err != nil {
		return nil, explain(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		line, into := make([]string, len(names)), make([]any, len(names))
		for i := range line {
			into[i] = &line[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		out = append(out, line)
	}
	return out, rows.Err()
}

// message returns what SQLite says about a statement; "" for another error.
func message(err error) string {
	if e := (*driver.Error)(nil); errors.As(err, &e) {
		return e.Error()
	}
	return ""
}
