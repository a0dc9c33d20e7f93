package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"waldo/internal/feature/sql/answer"
)

// schemaSQL returns each relation that the role may read, with its columns and keys as JSON. $1 is part of its name.
const schemaSQL = `SELECT c.oid::regclass::text, CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view'
    WHEN 'f' THEN 'foreign table' ELSE 'table' END, coalesce(left(obj_description(c.oid, 'pg_class'), 500), ''),
  (SELECT coalesce(json_agg(json_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
      'required', a.attnotnull, 'comment', coalesce(left(col_description(c.oid, a.attnum), 500), '')) ORDER BY a.attnum), '[]')
    FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      AND has_column_privilege(c.oid, a.attnum, 'SELECT')),
  (SELECT coalesce(json_agg(pg_get_constraintdef(k.oid) ORDER BY k.contype <> 'p', k.conname), '[]')
    FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype IN ('p', 'u', 'f'))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND n.nspname !~ '^pg_(toast|temp)' AND has_schema_privilege(n.oid, 'USAGE')
  AND has_any_column_privilege(c.oid, 'SELECT') AND position(lower($1) IN lower(n.nspname || '.' || c.relname)) > 0
ORDER BY n.nspname, c.relname LIMIT %d`

// Describe returns the tables that the role of a URL may read and whose names have part in them.
func Describe(ctx context.Context, c *pgconn.Config, part string, wall time.Duration) (*answer.Schema, error) {
	s, err := openProven(ctx, c, wall)
	if err != nil {
		return nil, err
	}
	defer s.end()
	if strings.ContainsRune(part, 0) {
		return nil, refuse("arguments", "PostgreSQL has no text with a NUL character")
	}
	r := s.ExecParams(ctx, fmt.Sprintf(schemaSQL, answer.MaxTables+1), [][]byte{[]byte(part)}, nil, nil, nil).Read()
	if r.Err != nil {
		return nil, r.Err
	}
	out := &answer.Schema{Tables: []answer.Relation{}}
	columns := 0
	for _, row := range r.Rows {
		t := answer.Relation{Name: string(row[0]), Kind: string(row[1]), Comment: string(row[2])}
		if err := json.Unmarshal(row[3], &t.Columns); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(row[4], &t.Keys); err != nil {
			return nil, err
		}
		if columns += len(t.Columns); len(out.Tables) == answer.MaxTables || columns > answer.MaxColumns {
			out.Cut = true
			break
		}
		out.Tables = append(out.Tables, t)
	}
	return out, nil
}
