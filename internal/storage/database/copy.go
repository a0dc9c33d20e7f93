package database

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"waldo/internal/model/id"
)

// Copied is one table that was copied.
type Copied struct {
	Table  string `json:"table"`
	Rows   int    `json:"rows"`
	Digest string `json:"digest"` // over all rows, in any order; the same in both databases
}

// CopiedFile is the name of the waldo.db that stays after a copy.
const CopiedFile = "waldo.db.copied"

// CopyToPostgres copies the rows of a waldo.db to an empty PostgreSQL database, compares both, and binds the state
// directory to it. The caller has made sure that no waldo runs; one that still has waldo.db open finds no tables there
// afterwards. The old rows stay in CopiedFile.
func CopyToPostgres(ctx context.Context, dir, raw string) (all []Copied, err error) {
	s, err := Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	if s.Shared() {
		return nil, fmt.Errorf("store: %s has its rows in %s already", s.Dir(), s.URL())
	}
	file := s.Path(sqliteFile)
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("store: %s has no rows yet: waldo store migrate binds it", s.Dir())
	}
	if err := s.open(); err != nil { // brings its schema up to date
		return nil, err
	}
	from, err := s.db.BeginTx(ctx, nil) // immediate: no other process writes from here on
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", file, err)
	}
	defer func() { _ = from.Rollback() }()
	p := place{URL: raw, Name: id.New(directory)}
	if all, err = copyRows(ctx, from, raw, p); err != nil {
		return nil, fmt.Errorf("store: %w", plain(err))
	}
	if err := keep(ctx, s.db, s.Path(CopiedFile)); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if err := bindAs(s.Dir(), p); err != nil {
		return nil, err
	}
	for _, t := range append(tables(all), "migrations") {
		if _, err := from.ExecContext(ctx, `DROP TABLE `+t); err != nil {
			return nil, fmt.Errorf("store: %s: %w", file, err)
		}
	}
	if err := errors.Join(from.Commit(), s.Close()); err != nil {
		return nil, fmt.Errorf("store: %s: %w", file, err)
	}
	for _, end := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(file + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("store: %w", err)
		}
	}
	return all, nil
}

func tables(all []Copied) (names []string) {
	for _, c := range all {
		names = append(names, c.Table)
	}
	return names
}

// copyRows copies every table in one transaction, which ends with all rows compared.
func copyRows(ctx context.Context, from *sql.Tx, raw string, p place) (all []Copied, err error) {
	if _, err := raise(ctx, raw); err != nil {
		return nil, err
	}
	db, err := openPostgres(raw)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	to, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = to.Rollback() }()
	if _, err := to.ExecContext(ctx, alone); err != nil {
		return nil, err
	}
	names, err := column(ctx, from, `SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'migrations' ORDER BY name`)
	if err != nil {
		return nil, err
	}
	for _, table := range names {
		var n int
		if err := to.QueryRowContext(ctx, `SELECT COUNT(*) FROM `+table).Scan(&n); err != nil {
			return nil, err
		}
		if n > 0 {
			return nil, fmt.Errorf("the database is not empty: its table %s has %d rows; name an empty one", table, n)
		}
	}
	for _, table := range names {
		c, err := copyTable(ctx, from, to, table, p)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", table, err)
		}
		all = append(all, c)
	}
	return all, to.Commit()
}

// copyTable copies one table, and compares what the target then holds.
func copyTable(ctx context.Context, from, to *sql.Tx, table string, p place) (Copied, error) {
	columns, err := column(ctx, from, `SELECT name FROM pragma_table_info('`+table+`') ORDER BY name`)
	if err != nil {
		return Copied{}, err
	}
	list := strings.Join(columns, ", ")
	var marks []string
	for i := range columns {
		marks = append(marks, fmt.Sprint("$", i+1))
	}
	insert, err := to.PrepareContext(ctx, `INSERT INTO `+table+` (`+list+`) VALUES (`+strings.Join(marks, ", ")+`)`)
	if err != nil {
		return Copied{}, err
	}
	defer func() { _ = insert.Close() }()
	query := `SELECT ` + list + ` FROM ` + table
	want, err := digest(ctx, from, query, func(row []any) error {
		p.owned(table, columns, row)
		_, err := insert.ExecContext(ctx, row...)
		return err
	})
	if err != nil {
		return Copied{}, err
	}
	got, err := digest(ctx, to, query, nil)
	if err == nil && got != want {
		err = fmt.Errorf("the copy differs: %d rows (%s) became %d (%s)", want.Rows, want.Digest, got.Rows, got.Digest)
	}
	got.Table = table
	return got, err
}

// owned gives a row that belongs to one state directory its name.
func (p place) owned(table string, columns []string, row []any) {
	at := func(name string) *any { return &row[slices.Index(columns, name)] }
	switch table {
	case "heads":
		*at("log") = p.own((*at("log")).(string))
	case "kv":
		*at("bucket") = p.bucket((*at("bucket")).(string))
	case "approvals", "approvers":
		*at("place") = p.Name
	}
}

// digest reads every row of a query, hands it to fn, and returns their number and a digest over them as they then are.
func digest(ctx context.Context, tx *sql.Tx, query string, fn func(row []any) error) (c Copied, err error) {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return c, err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return c, err
	}
	var sums [][]byte
	for rows.Next() {
		row, to := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to...); err != nil {
			return c, err
		}
		if fn != nil {
			if err := fn(row); err != nil {
				return c, err
			}
		}
		b, err := json.Marshal(row)
		if err != nil {
			return c, err
		}
		sum := sha256.Sum256(b)
		sums = append(sums, sum[:])
	}
	slices.SortFunc(sums, bytes.Compare)
	sum := sha256.Sum256(bytes.Join(sums, nil))
	return Copied{Rows: len(sums), Digest: "sha256:" + hex.EncodeToString(sum[:])}, rows.Err()
}

func column(ctx context.Context, tx *sql.Tx, query string) (all []string, err error) {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}
