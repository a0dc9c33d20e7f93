package redact

import (
	"errors"
	"strings"

	"waldo/internal/detect"
	"waldo/internal/detect/scrub"
	"waldo/internal/detect/words"

	"github.com/go-json-experiment/json/jsontext"
)

// leaf is one string, number or name of a JSON text, with its place.
type leaf struct {
	span
	name string // of the member it belongs to, through arrays; of a name: empty
	key  bool
	kind byte // '"' or '0'
	obj  int  // the number of its object
}

// text returns the leaf's value, given the text that contains it.
func (l leaf) text(src string) string {
	raw := src[l.Start:l.End]
	switch {
	case l.kind != '"':
		return raw
	case strings.IndexByte(raw, '\\') < 0:
		return raw[1 : len(raw)-1]
	}
	return unquote([]byte(raw))
}

// leaves returns the strings, numbers and names of one JSON value, in order.
func leaves(raw []byte) ([]leaf, error) {
	if !jsontext.Value(raw).IsValid() {
		return nil, errNoJSON
	}
	type level struct {
		name   string
		obj    int
		object bool
		naming bool // the next string is a name
	}
	out := make([]leaf, 0, len(raw)/12+4)
	stack, objects, src := append(make([]level, 0, 8), level{}), 0, string(raw)
	for i := 0; i < len(raw); {
		top := &stack[len(stack)-1]
		l := leaf{span: span{Start: i, End: i + 1}, kind: '0', obj: top.obj, name: top.name}
		switch c := raw[i]; {
		case c == '"':
			for l.End = i + 1; raw[l.End] != '"'; l.End++ {
				if raw[l.End] == '\\' {
					l.End++
				}
			}
			l.End++
			l.kind = c
			if top.naming {
				l.key, l.name, top.naming = true, "", false
				top.name = l.text(src)
			}
			out = append(out, l)
		case c == '-' || isDigit(c):
			for l.End < len(raw) && (isAlnum(raw[l.End]) || strings.IndexByte("+-.", raw[l.End]) >= 0) {
				l.End++
			}
			out = append(out, l)
		case c == '{':
			objects++
			stack = append(stack, level{obj: objects, object: true, naming: true})
		case c == '[':
			stack = append(stack, level{name: top.name, obj: top.obj})
		case c == '}' || c == ']':
			stack = stack[:len(stack)-1]
		case c == ',':
			top.naming = top.object
		}
		i = l.End
	}
	return out, nil
}

var errNoJSON = errors.New("not one JSON value")

func unquote(v []byte) string {
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return ""
	}
	return string(b)
}

// withheld replaces a JSON value that could not be made safe leaf by leaf.
const withheld = `{"waldo":"withheld: a secret is spread over this value"}`

// json returns a JSON value with everything hidden in its strings, numbers and names; the rest stays byte for byte.
// Input that is not JSON, or holds a secret across its parts, is withheld whole.
func (p *pass) json(raw []byte) []byte {
	all, err := leaves(raw)
	if err != nil {
		return []byte(withheld)
	}
	out, ok := p.members(raw, all)
	if !ok {
		return []byte(withheld)
	}
	return out
}

// members does the work of json for a text whose leaves are known. It reports false where the
// text cannot be made safe leaf by leaf.
func (p *pass) members(raw []byte, all []leaf) ([]byte, bool) {
	src := string(raw)
	q := p
	if !p.known.Has(raw) { // then not in a leaf either: the whole text's views show every leaf
		c := *p
		c.known = p.known.shortOnly()
		q = &c
	}
	person, binary := p.persons(src, all), binaries(src, all)
	fields := map[string]field{}
	var edits []edit
	for _, l := range all {
		old := l.text(src)
		f, ok := fields[l.name]
		if !ok && !l.key {
			f = fieldOf(l.name)
			fields[l.name] = f
		}
		text := q.leaf(old, l, f, person[l.obj], binary[l.obj])
		if text != old {
			quoted, err := jsontext.AppendQuote(nil, text)
			if err != nil {
				return nil, false
			}
			edits = append(edits, edit{l.span, string(quoted)})
		}
	}
	if len(edits) == 0 && q != p {
		return raw, true
	}
	out := []byte(apply(src, edits))
	if p.known.Has(out) {
		return nil, false
	}
	if !jsontext.Value(out).IsValid() { // two names became one
		return nil, false
	}
	return out, true
}

// leaf returns what is shown of one leaf.
func (p *pass) leaf(s string, l leaf, f field, person, binary bool) string {
	if l.key {
		return p.text(s)
	}
	switch {
	case l.kind == '0':
		return p.numeral(s, f)
	case binary && (l.name == "data" || l.name == "blob") && base64Only(s):
		return p.secretsOnly(s)
	case p.bare:
	case f.secret == 2 && !detect.Placeholder([]byte(s)), f.secret == 1 && detect.Random([]byte(s)):
		return p.whole(s)
	case p.classes[name] && (f.person || person && f.plainPerson) && isName(s):
		return p.all(name, s)
	case p.classes[phone] && f.phone && digitsIn(s) >= 6 && digitsIn(s) <= 15 && len(s) <= 40:
		return p.all(phone, s)
	case p.classes[ssn] && f.ssn && digitsIn(s) == 9:
		return p.all(ssn, s)
	}
	return p.text(s)
}

// numeral hides a number that is personal data by its form, or by its field.
func (p *pass) numeral(s string, f field) string {
	switch {
	case f.secret == 2 && !p.bare, p.known.short[s]:
		return p.whole(s)
	case p.classes[phone] && f.phone && digitsIn(s) >= 6:
		return p.all(phone, s)
	case p.classes[ssn] && f.ssn:
		return p.all(ssn, s)
	case p.classes[card] && len(s) >= 15 && digitsIn(s) == len(s) && detect.CardNumber([]byte(s)):
		return p.all(card, s)
	}
	return p.secretsOnly(s)
}

// all hides the whole of a value of a class.
func (p *pass) all(c class, s string) string {
	p.whole(s)
	return p.mask(c, s)
}

// isName reports whether the value of a field for names is one: short, and no token already.
func isName(s string) bool {
	return len(s) <= 200 && strings.TrimSpace(s) != "" && len(tokens(s)) == 0
}

// secretsOnly hides known secrets and nothing else.
func (p *pass) secretsOnly(s string) string {
	if !p.known.Has([]byte(s)) {
		return s
	}
	return p.secrets(s)
}

// base64Only reports whether s is nothing but characters of base64.
func base64Only(s string) bool {
	for i := range len(s) {
		if !isAlnum(s[i]) && strings.IndexByte("+/=-_\r\n", s[i]) < 0 {
			return false
		}
	}
	return true
}

func digitsIn(s string) (n int) {
	for i := range len(s) {
		if isDigit(s[i]) {
			n++
		}
	}
	return n
}

// field is the meaning that a member's name gives its value.
type field struct {
	secret              int // as of secrecy
	phone, ssn          bool
	person, plainPerson bool // a person's name for sure; the plain "name"
}

// fieldOf reads the name of a member.
func fieldOf(s string) field {
	f := field{secret: words.Secrecy([]byte(s))}
	switch w := flat(s); w {
	case "ssn", "socialsecuritynumber", "socialsecurity":
		f.ssn = true
	case "tel", "fax", "mobile", "msisdn":
		f.phone = true
	case "name":
		f.plainPerson = true
	case "firstname", "lastname", "fullname", "givenname", "familyname", "middlename", "surname", "maidenname",
		"contactname", "customername", "patientname", "employeename", "cardholdername", "cardholder":
		f.person = true
	default:
		for _, end := range []string{"phone", "mobile", "phonenumber", "mobilenumber", "phoneno", "faxnumber"} {
			f.phone = f.phone || strings.HasSuffix(w, end)
		}
	}
	return f
}

// flat returns a name's letters and digits in lower case.
func flat(s string) string { return scrub.Squeeze(s) }

// persons returns the objects that are about a person: those with a field that only people have.
// The plain field "name" holds a person's name in these alone.
func (p *pass) persons(src string, all []leaf) map[int]bool {
	if !p.classes[name] {
		return nil
	}
	out := map[int]bool{}
	for _, l := range all {
		if !l.key {
			continue
		}
		n := l.text(src)
		if f := fieldOf(n); f.phone || f.ssn || f.person {
			out[l.obj] = true
		}
		switch flat(n) {
		case "email", "emailaddress", "mail", "dateofbirth", "birthdate", "dob":
			out[l.obj] = true
		}
	}
	return out
}

// binaries returns the objects that hold bytes in base64: content blocks and resources with a media type. Only known
// secrets are searched for in their bytes.
func binaries(src string, all []leaf) map[int]bool {
	var out map[int]bool
	for _, l := range all {
		if l.key && src[l.Start:l.End] == `"mimeType"` {
			if out == nil {
				out = map[int]bool{}
			}
			out[l.obj] = true
		}
	}
	return out
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isAlpha(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isAlnum(c byte) bool { return isDigit(c) || isAlpha(c) }
