// Package answer holds the rows that a database returns, within limits, and shows them as JSON and as a text table.
package answer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"waldo/internal/model/display"
	"waldo/internal/protocol/strictjson"
)

// Error is a refusal of waldo's own: the statement did not run.
type Error struct {
	Code string // sql.role; matched by tests and people's scripts
	Text string // for a person
}

func (e *Error) Error() string { return e.Code + ": " + e.Text }

// Refuse returns a refusal. Its code gets the prefix "sql.".
func Refuse(code, format string, a ...any) *Error {
	return &Error{"sql." + code, fmt.Sprintf(format, a...)}
}

// Limits bound one answer. The zero Limits allow no row.
type Limits struct {
	Rows   int
	Bytes  int // of the JSON of all values
	Values int // of the rows, with those inside of JSON
}

// Part is how many bytes of values an answer has before it covers the most that it can have.
const Part = 256 << 10

// Memory is about what it takes to show an answer of so many bytes of values.
func Memory(bytes int) int64 { return 4 * int64(bytes) }

// Column is one column of an answer.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"` // the database's own word, as in int4 or text
}

// Value is the JSON of one value. Nil is null.
type Value []byte

// MarshalJSON returns the JSON.
func (v Value) MarshalJSON() ([]byte, error) {
	if v == nil {
		return []byte("null"), nil
	}
	return v, nil
}

// UnmarshalJSON takes the JSON of a value.
func (v *Value) UnmarshalJSON(b []byte) error {
	if *v = nil; string(b) != "null" {
		*v = append(Value{}, b...)
	}
	return nil
}

// Rows is an answer. Add fills it.
type Rows struct {
	Columns []Column  `json:"columns"`
	Rows    [][]Value `json:"rows"`
	// Cut names the limit at which the answer ends early: rows, values or bytes. It is empty if the answer is whole.
	Cut string `json:"cut,omitempty"`

	limits Limits
	bytes  int
	values int
}

// New returns an empty answer with these limits.
func New(columns []Column, l Limits) *Rows {
	return &Rows{Columns: columns, Rows: [][]Value{}, limits: l}
}

// Add appends a row. It returns false, adds nothing and sets Cut at a limit.
func (r *Rows) Add(row []Value) bool {
	if len(r.Rows) >= r.limits.Rows {
		r.Cut = "rows"
		return false
	}
	n, values := 0, len(row)
	for _, v := range row {
		n += len(v) + 1
		if len(v) > 0 && (v[0] == '{' || v[0] == '[') {
			values += 1 + bytes.Count(v, []byte(",")) // no fewer than it holds
		}
	}
	if r.values+values > r.limits.Values {
		r.Cut = "values"
		return false
	}
	if r.bytes+n > r.limits.Bytes {
		r.Cut = "bytes"
		return false
	}
	r.bytes, r.values = r.bytes+n, r.values+values
	r.Rows = append(r.Rows, row)
	return true
}

// Bytes returns how many bytes of values the answer has.
func (r *Rows) Bytes() int { return r.bytes }

// TooLarge is the refusal of an answer that was cut before its first row; nil: it has one, or no row was asked for.
func (r *Rows) TooLarge() *Error {
	if r.Cut == "" || len(r.Rows) > 0 || r.limits.Rows == 0 {
		return nil
	}
	return Refuse("large", "the first row alone has more than %d bytes or %d values: select fewer columns, or a part of the "+
		"value", r.limits.Bytes, r.limits.Values)
}

// Text returns a JSON string. Bytes that are not UTF-8 become U+FFFD.
func Text(s string) Value { return strictjson.AppendText(nil, strings.ToValidUTF8(s, "\uFFFD")) }

// exact is the largest whole number that every JSON reader keeps: 2^53.
const exact = 1 << 53

// Integer returns a JSON number, or a string if readers that use doubles would change it.
func Integer(n int64) Value {
	if n > exact || n < -exact {
		return Text(strconv.FormatInt(n, 10))
	}
	return strconv.AppendInt(nil, n, 10)
}

// JSON returns the value of a JSON column. Text that waldo reads as no strict JSON becomes a string.
func JSON(s string) Value {
	v, err := strictjson.Parse([]byte(s))
	if err != nil || !v.Exact() {
		return Text(s)
	}
	return v.Raw()
}

// Structured returns the answer as one JSON object.
func (r *Rows) Structured() (strictjson.Value, error) {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false) // six bytes for one
	if err := out.Encode(r); err != nil {
		return strictjson.Value{}, err
	}
	return strictjson.Parse(b.Bytes())
}

// cell is the widest cell of the text, in characters.
const cell = 200

// Show returns the answer as text: a line of column names, a line for each row, and the number of rows. Values are
// separated by " | ". Its error is the context's.
func (r *Rows) Show(ctx context.Context) (string, error) {
	var b strings.Builder
	for i, c := range r.Columns {
		if i > 0 {
			b.WriteString(" | ")
		}
		b.WriteString(plain(c.Name))
	}
	if len(r.Columns) > 0 {
		b.WriteByte('\n')
	}
	for _, row := range r.Rows {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		for i, v := range row {
			if i > 0 {
				b.WriteString(" | ")
			}
			b.WriteString(show(v))
		}
		b.WriteByte('\n')
	}
	switch {
	case r.Cut == "rows":
		fmt.Fprintf(&b, "(the first %s; the query has more)", count(len(r.Rows)))
	case r.Cut != "":
		fmt.Fprintf(&b, "(the first %s; the next one would exceed %d bytes or %d values)", count(len(r.Rows)), r.limits.Bytes,
			r.limits.Values)
	default:
		fmt.Fprintf(&b, "(%s)", count(len(r.Rows)))
	}
	return b.String(), nil
}

func count(n int) string {
	if n == 1 {
		return "1 row"
	}
	return strconv.Itoa(n) + " rows"
}

// show returns a value for the text: a string without its quotes, null as empty.
func show(v Value) string {
	if v == nil {
		return ""
	}
	s := string(v)
	if v[0] == '"' {
		if err := json.Unmarshal(v, &s); err != nil {
			return ""
		}
	}
	return plain(s)
}

// oneLine escapes what would end a line or a cell.
var oneLine = strings.NewReplacer("\r", `\r`, "\n", `\n`, "|", `\|`)

// plain puts a text on one line and cuts it to the width of a cell.
func plain(s string) string { return display.Excerpt(oneLine.Replace(s), cell) }
