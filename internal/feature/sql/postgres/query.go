package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"waldo/internal/budget"
	"waldo/internal/feature/sql/answer"
)

// openProven opens a session of a role that can only read.
func openProven(ctx context.Context, c *pgconn.Config, wall time.Duration) (*session, error) {
	s, err := open(ctx, c, wall)
	if err != nil {
		return nil, err
	}
	p, err := s.prove(ctx, "session_user")
	if err == nil {
		if why := p.Refusal(); why != nil {
			err = why
		}
	}
	if err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// Query runs one statement with arguments in a session of its own, and returns at most the rows of limits. Arguments
// are text, numbers, booleans and nil. An answer beyond answer.Part covers the most that it can have. A refusal of waldo's own is an *Error, one of the database a *pgconn.PgError.
func Query(
	ctx context.Context, c *pgconn.Config, query string, arguments []any, wall time.Duration, limits answer.Limits,
	room *budget.Lease,
) (*answer.Rows, error) {
	s, err := openProven(ctx, c, wall)
	if err != nil {
		return nil, err
	}
	defer s.end()
	return s.query(ctx, query, arguments, limits, room)
}

func (s *session) query(
	ctx context.Context, query string, arguments []any, limits answer.Limits, room *budget.Lease,
) (*answer.Rows, error) {
	explain, rest := command(query)
	p, err := s.prepare(ctx, rest)
	if err != nil {
		return nil, err
	}
	if len(arguments) != len(p.ParamOIDs) {
		return nil, refuse("arguments", "the statement has %d parameters, and %d arguments were given", len(p.ParamOIDs),
			len(arguments))
	}
	values := make([][]byte, len(arguments))
	for i, a := range arguments {
		if values[i], err = argument(a); err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var r *pgconn.ResultReader
	if explain != "" {
		r = s.ExecParams(ctx, explain+rest, values, p.ParamOIDs, nil, nil)
	} else {
		r = s.ExecPrepared(ctx, statementName, values, nil, nil)
	}
	return s.collect(ctx, r, limits, stop, room)
}

// collect reads the rows up to the limits. At a limit it ends the statement.
func (s *session) collect(
	ctx context.Context, r *pgconn.ResultReader, limits answer.Limits, stop func(), room *budget.Lease,
) (*answer.Rows, error) {
	fields := r.FieldDescriptions()
	columns := make([]answer.Column, len(fields))
	for i, f := range fields {
		columns[i] = answer.Column{Name: f.Name, Type: typeName(f.DataTypeOID)}
	}
	out := answer.New(columns, limits)
	end := func() { stop(); _, _ = r.Close() } // the cancelled statement's error
	for r.NextRow() {
		if out.Bytes() > answer.Part {
			if err := room.Cover(ctx, answer.Memory(limits.Bytes)); err != nil {
				end()
				return nil, err
			}
		}
		row := make([]answer.Value, len(fields))
		for i, v := range r.Values() {
			row[i] = value(fields[i].DataTypeOID, v)
		}
		if !out.Add(row) {
			end()
			return whole(out)
		}
	}
	_, err := r.Close()
	if long := (*pgproto3.ExceededMaxBodyLenErr)(nil); errors.As(err, &long) {
		out.Cut = "bytes"
		return whole(out)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// whole returns an answer, or the refusal where not even its first row fits.
func whole(out *answer.Rows) (*answer.Rows, error) {
	if why := out.TooLarge(); why != nil {
		return nil, why
	}
	return out, nil
}

// argument returns the text form of an argument; nil is NULL. The database converts it to the parameter's type.
func argument(a any) ([]byte, error) {
	switch v := a.(type) {
	case nil:
		return nil, nil
	case string:
		if strings.ContainsRune(v, 0) {
			return nil, refuse("arguments", "PostgreSQL has no text with a NUL character")
		}
		return []byte(v), nil
	case bool:
		return strconv.AppendBool(nil, v), nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.AppendInt(nil, int64(v), 10), nil
		}
		return strconv.AppendFloat(nil, v, 'g', -1, 64), nil
	}
	return nil, refuse("arguments", "an argument is a text, a number, true, false or null")
}

// The oids of types whose values have another JSON form than their text (pg_type.dat).
var typeNames = map[uint32]string{
	16: "bool", 17: "bytea", 18: "char", 19: "name", 20: "int8", 21: "int2", 23: "int4", 25: "text", 26: "oid",
	114: "json", 142: "xml", 600: "point", 650: "cidr", 700: "float4", 701: "float8", 790: "money", 829: "macaddr",
	869: "inet", 1000: "bool[]", 1005: "int2[]", 1007: "int4[]", 1009: "text[]", 1016: "int8[]", 1022: "float8[]",
	1042: "bpchar", 1043: "varchar", 1082: "date", 1083: "time", 1114: "timestamp", 1184: "timestamptz", 1186: "interval",
	1231: "numeric[]", 1266: "timetz", 1560: "bit", 1562: "varbit", 1700: "numeric", 2205: "regclass", 2249: "record",
	2950: "uuid", 3614: "tsvector", 3615: "tsquery", 3802: "jsonb",
}

// typeName returns the name of a type of PostgreSQL's own, and of others their oid.
func typeName(oid uint32) string {
	if n, ok := typeNames[oid]; ok {
		return n
	}
	return fmt.Sprintf("type %d", oid)
}

// value returns the JSON of a value in the text format. Numbers that JSON readers would change become texts.
func value(oid uint32, v []byte) answer.Value {
	if v == nil {
		return nil
	}
	text := string(v)
	switch typeNames[oid] {
	case "bool":
		if text == "t" {
			return answer.Value("true")
		}
		return answer.Value("false")
	case "int2", "int4", "int8", "oid":
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return answer.Integer(n)
		}
	case "float4", "float8":
		if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
			return answer.Value(strconv.AppendFloat(nil, f, 'g', -1, 64))
		}
	case "json", "jsonb":
		return answer.JSON(text)
	}
	return answer.Text(text)
}
