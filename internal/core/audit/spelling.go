package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"waldo/internal/protocol/strictjson"
)

// spelled returns why readers can take the body of a record for different things; nil: they cannot. Some readers take
// the last of two equal names, and some take names in other letters for equal (encoding/json). So each name is there
// once, in small letters. In the kinds of judged that holds at every depth; others have arguments of agents in them.
func spelled(r Record) error {
	return names(r.Body, slices.Contains(judged, r.Kind))
}

// Arguments returns what speaks against the arguments in the record of a decision; nil: they have the digest in it, the
// record has none, or redacted is true. Records hold arguments in their RFC 8785 form, as ASCII.
func Arguments(r Record) (redacted bool, err error) {
	if r.Kind != KindDecision {
		return false, nil
	}
	var d struct {
		Args     json.RawMessage `json:"args"`
		Digest   string          `json:"args_digest"`
		Redacted bool            `json:"args_redacted"`
	}
	_ = json.Unmarshal(r.Body, &d) // a member of another type is an empty one
	if len(d.Args) == 0 || string(d.Args) == "null" || d.Redacted {
		return d.Redacted, nil
	}
	if got := strictjson.Digest(unplain(d.Args)); got != d.Digest {
		return false, fmt.Errorf("the arguments of record %d are not those that were decided: they have the digest %s, and "+
			"the decision has %s", r.Seq, got, d.Digest)
	}
	return false, nil
}

// escapes are those of a JSON text; a character beyond U+FFFF has two.
var escapes = regexp.MustCompile(`\\ud[89ab]..\\ud[c-f]..|\\u....|\\.`)

// unplain turns the escapes that plain made into the characters that RFC 8785 has.
func unplain(b []byte) []byte {
	return escapes.ReplaceAllFunc(b, func(one []byte) []byte {
		var c string
		if err := json.Unmarshal([]byte(`"`+string(one)+`"`), &c); err != nil || c < "\x7f" {
			return one
		}
		return []byte(c)
	})
}

// judged are the kinds whose bodies Verify holds against signatures.
var judged = []string{KindVerdict, KindAnswer, KindApprover, KindTrust}

func names(object []byte, deep bool) (err error) {
	var seen [][]byte
	members(object, func(name, value []byte) {
		switch {
		case err != nil:
		case name != nil && !plainName(name):
			err = fmt.Errorf("its member %s is not in small letters", name)
		case name != nil && slices.ContainsFunc(seen, func(o []byte) bool { return bytes.Equal(o, name) }):
			err = fmt.Errorf("it has the member %s twice", name)
		case deep && len(value) > 0 && (value[0] == '{' || value[0] == '['):
			err = names(value, true)
		}
		seen = append(seen, name)
	})
	return err
}

// plainName reports whether a name, in its quotes, has small letters, digits, - and _ alone.
func plainName(name []byte) bool {
	if len(name) < 2 || name[0] != '"' || name[len(name)-1] != '"' {
		return false
	}
	return !slices.ContainsFunc(name[1:len(name)-1], func(c byte) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-'
	})
}

// members calls fn with each member of an object as it is spelled, or each element of an array without a name. The text
// must be valid JSON.
func members(text []byte, fn func(name, value []byte)) {
	depth, quoted, start, name := 0, false, 0, []byte(nil)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth == 1 {
				start = i + 1
			}
		case c == '}' || c == ']':
			if depth--; depth == 0 && i > start {
				fn(name, text[start:i])
			}
		case c == ':' && depth == 1:
			name, start = text[start:i], i+1
		case c == ',' && depth == 1:
			fn(name, text[start:i])
			start = i + 1
		}
	}
}
