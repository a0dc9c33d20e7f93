package approval

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/net/idna"

	"waldo/internal/model/display"
	"waldo/internal/protocol/strictjson"
)

// Field is one value in the arguments, ready to be shown on one line.
type Field struct {
	Path  string // to, opt.x, list[0]
	Value string // strings are quoted; characters that a terminal or an eye could misread are escaped
	Note  string // how a value that is not ASCII reads in ASCII, and its hosts in punycode
}

// Limits on the arguments shown.
const (
	maxValue  = 2048 // bytes of one string
	maxFields = 2000
)

// Fields returns every value in the arguments, at any depth, in the order of their canonical form. A string over
// 2,048 bytes is shown by its ends, its size and its digest. After 2,000 fields one more counts the rest; waldo asks no
// such question.
func (q Question) Fields() []Field {
	out, more := q.fields()
	if more > 0 {
		out = append(out, Field{
			Path: "…", Value: fmt.Sprintf("%d more values are NOT shown here; the whole is %d bytes, %s", more,
				len(q.Args), q.ArgsDigest),
		})
	}
	return out
}

// fields returns the first fields, and how many more there are.
func (q Question) fields() (out []Field, more int) {
	leaf := func(path string, v jsontext.Value) {
		if len(out) >= maxFields {
			more++
			return
		}
		out = append(out, field(path, v))
	}
	if len(q.Run) > 0 { // no argument has this path: its parentheses would be quoted
		walk(jsontext.NewDecoder(bytes.NewReader(q.Run)), "(sandbox)", leaf)
	}
	rows := q.Rows()
	for _, r := range rows {
		for _, f := range r.Fields {
			if f.Path = fmt.Sprintf("calls[%d].%s", r.Number, f.Path); len(out) < maxFields {
				out = append(out, f)
			} else {
				more++
			}
		}
	}
	if rows == nil && string(q.Args) != "{}" {
		walk(jsontext.NewDecoder(bytes.NewReader(q.Args)), "", leaf)
	}
	return out, more
}

// walk calls leaf for every value that contains no other. The arguments were parsed strictly before, so rereading
// does not fail; on an error the rest is not shown.
func walk(d *jsontext.Decoder, path string, leaf func(string, jsontext.Value)) {
	kind := d.PeekKind()
	if kind != '{' && kind != '[' {
		if v, err := d.ReadValue(); err == nil {
			leaf(path, v)
		}
		return
	}
	if _, err := d.ReadToken(); err != nil {
		return
	}
	n := 0
	for ; d.PeekKind() != '}' && d.PeekKind() != ']'; n++ {
		step := fmt.Sprintf("[%d]", n)
		if kind == '{' {
			name, err := d.ReadToken()
			if err != nil {
				return
			}
			step = member(path, name.String())
		}
		if d.PeekKind() == 0 {
			return
		}
		walk(d, path+step, leaf)
	}
	_, _ = d.ReadToken()
	if n == 0 {
		leaf(path, jsontext.Value(map[jsontext.Kind]string{'{': "{}", '[': "[]"}[kind]))
	}
}

// member writes the step to a member of an object: .name, or ["odd name"].
func member(path, name string) string {
	for i, r := range name {
		if r != '_' && r != '-' && (r > 0x7e || !unicode.IsLetter(r)) && (i == 0 || r > 0x7e || !unicode.IsDigit(r)) {
			return "[" + Escape(name) + "]"
		}
	}
	switch {
	case name == "" || len(name) > 100:
		return "[" + cut(name) + "]"
	case path == "":
		return name
	}
	return "." + name
}

func field(path string, v jsontext.Value) Field {
	f := Field{Path: path, Value: v.String()}
	if v.Kind() == '0' {
		f.Value, f.Note = number(f.Value)
	}
	if v.Kind() == '"' {
		b, err := jsontext.AppendUnquote(nil, v)
		if err != nil {
			b = v
		}
		f.Value, f.Note = cut(string(b)), note(string(b))
	}
	if n := note(path); n != "" { // a letter of another alphabet passes for a Latin one in a name as well
		f.Note = strings.TrimPrefix(f.Note+"; name "+n, "; ")
	}
	return f
}

// maxNumber is how many characters of a number are shown.
const maxNumber = 100

// number shows a number in its canonical spelling, with the same decimal value: -0 is 0, 1E2 is 100. A long one is
// shown by its ends. The note gives the value as a 64-bit float, if that differs.
func number(s string) (shown, note string) {
	if v, err := strictjson.Parse([]byte(s)); err != nil || !v.Exact() {
		f, _ := strconv.ParseFloat(s, 64)
		note = "a 64-bit float reads it as " + strconv.FormatFloat(f, 'g', -1, 64)
	}
	if len(s) <= maxNumber {
		return s, note
	}
	head, tail := s[:40], s[len(s)-20:]
	return fmt.Sprintf("%s … %d CHARACTERS NOT SHOWN … %s (a number of %d characters, sha256:%x)", head,
		len(s)-len(head)-len(tail), tail, len(s), sha256.Sum256([]byte(s))), note
}

// cut quotes a string, showing a long one by its ends.
func cut(s string) string {
	if len(s) <= maxValue {
		return Escape(s)
	}
	head, tail := s[:768], s[len(s)-256:]
	return fmt.Sprintf("%s … %d BYTES NOT SHOWN … %s (%d bytes in all, sha256:%x)", Escape(head),
		len(s)-len(head)-len(tail), Escape(tail), len(s), sha256.Sum256([]byte(s)))
}

// Escape quotes a string for one line of a terminal or page; see display.Quote.
func Escape(s string) string { return display.Quote(s) }

// note says how a string with other than ASCII reads in ASCII.
func note(s string) string {
	ascii := true
	for i := range len(s) {
		ascii = ascii && s[i] < utf8.RuneSelf
	}
	if ascii {
		return ""
	}
	if len(s) > maxValue {
		return "not ASCII"
	}
	out := "not ASCII: " + strconv.QuoteToASCII(s)
	for _, h := range hosts(s) {
		out += ", host " + h
	}
	return out
}

// hosts returns what looks like a host name outside ASCII, as the network would see it.
func hosts(s string) []string {
	var out []string
	for _, word := range strings.FieldsFunc(s, func(r rune) bool {
		return r != '.' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		if !strings.Contains(word, ".") || len(word) > 253 {
			continue
		}
		labels := strings.Split(strings.ToLower(word), ".")
		odd := false
		for i, l := range labels {
			p, err := idna.Punycode.ToASCII(l)
			if err != nil { // xn-- before what is not Punycode: the network refuses it
				p = strconv.QuoteToASCII(l)
			}
			labels[i], odd = p, odd || p != l
		}
		if odd {
			out = append(out, strings.Join(labels, "."))
		}
	}
	return out
}

// Show writes the question for a terminal. Every line that holds the agent's words starts with a
// bar, and nothing in those words can end a line; so they cannot pass for waldo's.
func (q Question) Show() string {
	var b strings.Builder
	row := func(name, value string) { fmt.Fprintf(&b, "  %-11s %s\n", name, value) }
	b.WriteString("waldo asks whether this call may run.\n")
	row("approval", q.ID)
	row("capability", name(string(q.Capability)))
	row("asked by", fmt.Sprintf("%s, session %s, channel %s", name(string(q.Principal)),
		name(string(q.Session)), name(q.Channel)))
	row("class", fmt.Sprintf("%s, danger %d of 3", name(q.Mode), q.Danger))
	for _, r := range q.Reasons {
		where := ""
		if r.File != "" {
			where = fmt.Sprintf(" (%s:%d)", name(r.File), r.Line)
		}
		row("because", name(r.Code)+" "+name(r.Text)+where)
	}
	for _, n := range q.Notes {
		row("waldo found", upTo(n, maxNote))
	}
	if q.Role != "" {
		row("role", name(q.Role))
	}
	if q.Need > 1 {
		row("needs", fmt.Sprintf("a yes of %d different approvers", q.Need))
	}
	row("expires", q.Expires.UTC().Format(time.RFC3339))
	b.WriteString(q.Exactly())
	q.showChanges(&b)
	switch n := len(q.Calls()); {
	case n == 0:
		b.WriteString("End of the arguments. A yes is for this one call with these arguments, once.\n")
	case len(q.struck) == 0:
		fmt.Fprintf(&b, "End of the calls. A yes is for these %d calls, in this order, once.\n", n)
	default:
		fmt.Fprintf(&b, "End of the calls. A yes is for %d of these calls, in this order, once: %s struck out.\n",
			n-len(q.struck), NameRows(q.struck))
	}
	return b.String()
}

// Short repeats in one line what the first lines of Show say, for a screen that they have left.
func (q Question) Short() string {
	return fmt.Sprintf("In short: danger %d of 3, %s, %s, capability %s", q.Danger, name(q.Mode),
		display.Count(len(q.Fields()), "value"), cut(string(q.Capability)))
}

// Exactly writes what the call would do and its arguments. Every line that is not waldo's starts with a bar.
func (q Question) Exactly() string {
	var b strings.Builder
	if len(q.Preview) > 0 {
		b.WriteString("The call would do this; the content is not waldo's:\n")
	}
	for _, l := range q.Preview {
		fmt.Fprintf(&b, "  | %s\n", upTo(l, maxNote))
	}
	if rows := q.Rows(); rows != nil {
		q.showRows(&b, rows)
		return b.String()
	}
	fmt.Fprintf(&b, "The agent wrote these arguments (%d bytes, %s); their content is its claim:\n",
		len(q.Args), q.ArgsDigest)
	if string(q.Args) == "{}" {
		b.WriteString("  | no arguments\n")
	}
	for _, f := range q.Fields() {
		fmt.Fprintf(&b, "  | %s = %s\n", f.Path, f.Value)
		if f.Note != "" {
			fmt.Fprintf(&b, "  |   (%s)\n", f.Note)
		}
	}
	return b.String()
}

// name shows a short untrusted text: unchanged if it is plain ASCII, else quoted.
func name(s string) string { return upTo(s, 300) }

// maxNote limits a note that is shown, in bytes: enough for any value of a token.
const maxNote = 8 << 10

func upTo(s string, most int) string {
	for _, r := range s {
		if r < 0x20 || r > 0x7e {
			return cut(s)
		}
	}
	if len(s) > most {
		return cut(s[:most]) + "…"
	}
	return s
}
