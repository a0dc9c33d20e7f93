// Package audit writes the log: one line of JSON for each record, chained to the previous line by SHA-256, in
// append-only segments. docs/audit.md defines the format.
package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"waldo/internal/model/id"
	"waldo/internal/protocol/strictjson"
)

// Version is the number in "v" of every record that this package writes and reads.
const Version = 1

// MaxBody is how many bytes of body a record holds. A longer one is replaced by its size and digest.
const MaxBody = 1 << 20

// MaxLine is how long a line may be, its newline included.
const MaxLine = MaxBody + 1024

// Record is one line of the log. Its body is opaque to the log.
type Record struct {
	Seq  uint64 // from 1, without gaps
	ID   string // "e_…"
	At   string // RFC 3339 in UTC with milliseconds
	Prev string // hash of the record before; 64 zeros for the first
	Kind string // decision, answer, outcome, …
	Body []byte // one JSON object, compact, ASCII
	Hash string // SHA-256 of the line up to `,"hash":`, as 64 hexadecimal digits
}

// MarshalJSON returns the record's line in the log, without the newline.
func (r Record) MarshalJSON() ([]byte, error) { return r.line(), nil }

// genesis is the Prev of the first record.
const genesis = "0000000000000000000000000000000000000000000000000000000000000000"

// tailLen is the length of `,"hash":"` + 64 digits + `"}`.
const tailLen = 9 + 64 + 2

// head appends the line up to its hash.
func (r Record) head(b []byte) []byte {
	b = slices.Grow(b, 320+len(r.Body))
	b = append(b, `{"v":1,"seq":`...)
	b = strconv.AppendUint(b, r.Seq, 10)
	b = append(b, `,"id":"`...)
	b = append(b, r.ID...)
	b = append(b, `","at":"`...)
	b = append(b, r.At...)
	b = append(b, `","prev":"`...)
	b = append(b, r.Prev...)
	b = append(b, `","kind":"`...)
	b = append(b, r.Kind...)
	b = append(b, `","body":`...)
	return append(b, r.Body...)
}

func (r Record) line() []byte {
	b := append(r.head(nil), `,"hash":"`...)
	b = append(b, r.Hash...)
	return append(b, `"}`...)
}

// seal sets the hash and appends the line with its newline.
func (r *Record) seal(b []byte) []byte {
	start := len(b)
	b = r.head(b)
	r.Hash = hashOf(b[start:])
	b = append(b, `,"hash":"`...)
	b = append(b, r.Hash...)
	return append(b, "\"}\n"...)
}

func hashOf(b []byte) string {
	s := sha256.Sum256(b)
	var digits [2 * len(s)]byte
	hex.Encode(digits[:], s[:])
	return string(digits[:])
}

// The faults of a line.
var (
	errLayout  = errors.New("not in the layout of a record")
	errVersion = errors.New("of a version that this waldo does not know")
	errHash    = errors.New("changed: its hash does not fit its bytes")
)

// parseRecord parses one line without its newline. Each record has one spelling: Record.line writes an accepted line
// back byte for byte. It checks the record's own hash, not the chain. The result does not alias line.
func parseRecord(line []byte) (Record, error) {
	r, err := viewRecord(line)
	r.Body = bytes.Clone(r.Body)
	return r, err
}

// viewRecord is parseRecord of which the body is the one in line.
func viewRecord(line []byte) (Record, error) {
	var r Record
	rest, ok := bytes.CutPrefix(line, []byte(`{"v":`))
	if !ok || len(line) < tailLen || len(line) >= MaxLine {
		return r, errLayout
	}
	if !printable(line) {
		return r, errLayout
	}
	v, rest, ok := digits(rest)
	if !ok {
		return r, errLayout
	}
	if v != Version {
		return r, errVersion
	}
	if rest, ok = bytes.CutPrefix(rest, []byte(`,"seq":`)); !ok {
		return r, errLayout
	}
	if r.Seq, rest, ok = digits(rest); !ok {
		return r, errLayout
	}
	for _, f := range []struct {
		name string
		to   *string
		good func([]byte) bool
	}{
		{`,"id":"`, &r.ID, func(b []byte) bool { return id.Is(id.Record, string(b)) }},
		{`,"at":"`, &r.At, isTime},
		{`,"prev":"`, &r.Prev, isHash},
		{`,"kind":"`, &r.Kind, isKind},
	} {
		if rest, ok = bytes.CutPrefix(rest, []byte(f.name)); !ok {
			return r, errLayout
		}
		end := bytes.IndexByte(rest, '"')
		if end < 0 || !f.good(rest[:end]) {
			return r, errLayout
		}
		*f.to, rest = string(rest[:end]), rest[end+1:]
	}
	err := r.parseEnd(line, rest)
	return r, err
}

// parseEnd reads the body and the hash, which is rest of line.
func (r *Record) parseEnd(line, rest []byte) error {
	rest, ok := bytes.CutPrefix(rest, []byte(`,"body":`))
	if !ok || len(rest) < tailLen+2 {
		return errLayout
	}
	body, tail := rest[:len(rest)-tailLen], rest[len(rest)-tailLen:]
	hash, ok := bytes.CutPrefix(tail, []byte(`,"hash":"`))
	if !ok || !isHash(hash[:64]) || string(hash[64:]) != `"}` {
		return errLayout
	}
	r.Hash = string(hash[:64])
	if hashOf(line[:len(line)-tailLen]) != r.Hash {
		return errHash
	}
	if body[0] != '{' || !jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true)) {
		return errLayout
	}
	r.Body = body
	return nil
}

// digits reads a number as strconv writes it.
func digits(b []byte) (n uint64, rest []byte, ok bool) {
	i := 0
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	if i == 0 || (b[0] == '0' && i > 1) {
		return 0, b, false
	}
	n, err := strconv.ParseUint(string(b[:i]), 10, 63)
	return n, b[i:], err == nil
}

const TimeLayout = "2006-01-02T15:04:05.000Z"

func isTime(b []byte) bool {
	_, ok := when(string(b))
	return ok
}

// when reads a time in TimeLayout, which time.Parse does six times slower.
func when(s string) (t time.Time, ok bool) {
	if len(s) != len(TimeLayout) {
		return t, false
	}
	var n [7]int
	at := 0
	for i := range len(s) {
		switch c := s[i]; {
		case TimeLayout[i] >= '0' && TimeLayout[i] <= '9':
			if c < '0' || c > '9' {
				return t, false
			}
			n[at] = 10*n[at] + int(c-'0')
		case c != TimeLayout[i]:
			return t, false
		default:
			at++
		}
	}
	t = time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], n[6]*int(time.Millisecond), time.UTC)
	y, m, d := t.Date()
	return t, y == n[0] && int(m) == n[1] && d == n[2] && n[3] < 24 && n[4] < 60 && n[5] < 60
}

// printable reports whether a text is printable ASCII alone, eight bytes at a time.
func printable(b []byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; len(b) >= 8; b = b[8:] {
		w := binary.LittleEndian.Uint64(b)
		if (w|(w+ones)|(w-' '*ones))&highs != 0 { // beyond ASCII, 0x7f, or below the space
			return false
		}
	}
	for _, c := range b {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

var hexDigit = func() (t [256]bool) {
	for _, c := range "0123456789abcdef" {
		t[c] = true
	}
	return t
}()

func isHash(b []byte) bool {
	if len(b) != 64 {
		return false
	}
	ok := true
	for _, c := range b {
		ok = ok && hexDigit[c]
	}
	return ok
}

func isKind(b []byte) bool {
	for _, c := range b {
		if (c < 'a' || c > 'z') && c != '_' {
			return false
		}
	}
	return len(b) > 0 && len(b) <= 32
}

// bounded returns a body as written to the log: compact ASCII of at most MaxBody bytes. A longer body, or one that is
// not one strict JSON object, is replaced by its size and digest.
func bounded(body []byte) []byte {
	v, err := strictjson.Parse(body)
	if err == nil && v.Kind() == '{' {
		if b := plain(v.Raw()); len(b) <= MaxBody {
			return b
		}
	}
	why := "too long"
	if err != nil || v.Kind() != '{' {
		why = "not strict JSON"
	}
	return fmt.Appendf(nil, `{"left_out":%q,"bytes":%d,"sha256":"%s"}`, why, len(body), hashOf(body))
}

// plain returns valid JSON without space between tokens, with characters beyond printable ASCII as \u escapes. So it
// is one line on every terminal.
func plain(b []byte) []byte {
	out := make([]byte, 0, len(b))
	quoted := false
	for i := 0; i < len(b); {
		c := b[i]
		switch {
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRune(b[i:])
			out = escape(out, r)
			i += n
			continue
		case c == 0x7f:
			out = escape(out, 0x7f)
		case quoted && c == '\\':
			out = append(out, c, b[i+1])
			i++
		case c == '"':
			quoted = !quoted
			out = append(out, c)
		case quoted || (c != ' ' && c != '\t' && c != '\n' && c != '\r'):
			out = append(out, c)
		}
		i++
	}
	return out
}

func escape(out []byte, r rune) []byte {
	if r < 0x10000 {
		return fmt.Appendf(out, `\u%04x`, r)
	}
	r -= 0x10000
	return fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
}

// Parse reads a line of a log without its newline, and checks it against its own hash.
func Parse(line []byte) (Record, error) {
	r, err := parseRecord(line)
	if err == nil {
		err = spelled(r)
	}
	return r, err
}
