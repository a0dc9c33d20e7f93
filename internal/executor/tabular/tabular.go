// Package tabular describes tables in files for a model: rows, columns with types, and the first lines. It reads the
// first part of a CSV file.
package tabular

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
	"waldo/internal/model/display"
)

// Bounds of a summary.
const (
	maxRead    = 1 << 20 // bytes of a file; rows after them are not counted
	maxValues  = 100_000 // of all rows that are read; likewise
	maxColumns = 50      // that are listed
	maxFields  = 10_000  // of one row
	maxCell    = 60      // characters of a cell or a name
	firstRows  = 5
)

// Memory is about what a summary takes, in bytes.
const Memory = 8 << 20

// errShape is the error for a file that is not the table that its name says.
var errShape = errors.New("not a table")

// Summary describes a file by its name's ending: .csv or .tsv. ok is false for any other file, for one that is not a
// table, and after the end of ctx.
func Summary(ctx context.Context, name string, r io.ReaderAt, size int64) (text string, ok bool) {
	comma := map[string]rune{".csv": ',', ".tsv": '\t'}[strings.ToLower(path.Ext(name))]
	if comma == 0 {
		return "", false
	}
	b := make([]byte, min(size, maxRead))
	n, err := r.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return "", false
	}
	b, cut := first(b[:n], byte(comma))
	s := summary{more: cut || int64(n) < size}
	if s.csv(ctx, bytes.NewReader(b), comma) != nil {
		return "", false
	}
	return s.text(), true
}

// first returns the beginning of a table that has no more than maxValues values.
func first(b []byte, comma byte) (part []byte, cut bool) {
	values := 0
	for i, c := range b {
		if c == comma || c == '\n' {
			if values++; values >= maxValues {
				return b[:i], i < len(b)-1
			}
		}
	}
	return b, false
}

// summary describes one table.
type summary struct {
	columns []column
	rows    int64
	more    bool // there are more rows than were counted
	first   [][]string
}

type column struct{ name, kind string }

// csv reads a table with a header.
func (s *summary) csv(ctx context.Context, from io.Reader, comma rune) error {
	in := csv.NewReader(from)
	in.Comma, in.ReuseRecord, in.LazyQuotes, in.FieldsPerRecord = comma, true, true, -1
	head, err := in.Read()
	if err != nil || len(head) > maxFields {
		return errShape
	}
	for i, name := range head {
		if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
			return errShape
		}
		if i == 0 {
			name = strings.TrimPrefix(name, "\ufeff")
		}
		s.columns = append(s.columns, column{name: strings.Clone(name)})
	}
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		row, err := in.Read()
		if err == io.EOF {
			break
		}
		if err != nil || len(row) > maxFields {
			return errShape
		}
		for i, cell := range row[:min(len(row), len(s.columns))] {
			s.columns[i].kind = both(s.columns[i].kind, cell)
		}
		if s.rows++; len(s.first) < firstRows {
			short := make([]string, 0, min(len(row), maxColumns))
			for _, cell := range row[:min(len(row), maxColumns)] {
				short = append(short, clip(cell))
			}
			s.first = append(s.first, short)
		}
	}
	if s.more && s.rows > 0 {
		s.rows-- // the last was cut
	}
	return nil
}

// both returns the type of a column of a type that has one more cell.
func both(kind, cell string) string {
	if kind == "text" || cell == "" {
		return kind
	}
	now := typeOf(cell)
	switch {
	case kind == "" || kind == now:
		return now
	case kind == "integer" && now == "number", kind == "number" && now == "integer":
		return "number"
	}
	return "text"
}

func typeOf(cell string) string {
	if _, err := strconv.ParseInt(cell, 10, 64); err == nil && (cell == "0" || strings.TrimLeft(cell, "-+")[0] != '0') {
		return "integer" // 007 is a code
	}
	if _, err := strconv.ParseFloat(cell, 64); err == nil && !strings.ContainsAny(cell, "xX_") &&
		(cell[0] != '0' || strings.HasPrefix(cell, "0.")) {
		return "number"
	}
	switch strings.ToLower(cell) {
	case "true", "false":
		return "boolean"
	}
	if _, err := time.Parse(time.DateOnly, cell); err == nil {
		return "date"
	}
	for _, form := range []string{time.RFC3339, time.DateTime, "2006-01-02T15:04:05"} {
		if _, err := time.Parse(form, cell); err == nil {
			return "time"
		}
	}
	return "text"
}

// clip cuts a cell, and takes out the ends of lines.
func clip(cell string) string {
	return display.Excerpt(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == 0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(cell[:min(len(cell), 4*maxCell)], "\ufffd")), maxCell)
}

// text writes the summary as the library for code in sandboxes does for tables in memory (show.py).
func (s *summary) text() string {
	var b strings.Builder
	least := ""
	if s.more {
		least = "at least "
	}
	fmt.Fprintf(&b, "table: %s%s, %s\n", least, count(s.rows, "row"), count(int64(len(s.columns)), "column"))
	for _, c := range s.columns[:min(len(s.columns), maxColumns)] {
		kind := c.kind
		if kind == "" {
			kind = "empty"
		}
		fmt.Fprintf(&b, "  %s: %s\n", clip(c.name), kind)
	}
	if n := len(s.columns) - maxColumns; n > 0 {
		fmt.Fprintf(&b, "  and %s\n", count(int64(n), "more column"))
	}
	if len(s.first) == 0 {
		return strings.TrimSuffix(b.String(), "\n")
	}
	fmt.Fprintf(&b, "first %s:\n", count(int64(len(s.first)), "row"))
	out := csv.NewWriter(&b)
	names := []string{}
	for _, c := range s.columns[:min(len(s.columns), maxColumns)] {
		names = append(names, clip(c.name))
	}
	_ = errors.Join(out.Write(names), out.WriteAll(s.first)) // into memory
	return strings.TrimSuffix(b.String(), "\n")
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
