package redact

import (
	"bytes"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// leaf is one string, number or name of a JSON text, with its place.
type leaf struct {
	span
	name string // of the member it belongs to, through arrays; of a name: empty
	key  bool
	kind byte // '"' or '0'
	obj  int  // the object it stands in, by number
}

// leaves returns the strings, numbers and names of one JSON value, in order.
func leaves(raw []byte) ([]leaf, error) {
	var out []leaf
	type level struct {
		name string
		obj  int
		keys bool
	}
	stack, objects := []level{{}}, 0
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	for {
		top := &stack[len(stack)-1]
		switch k := d.PeekKind(); k {
		case '"', '0':
			v, err := d.ReadValue()
			if err != nil {
				return nil, err
			}
			end := int(d.InputOffset())
			kind, count := d.StackIndex(d.StackDepth())
			l := leaf{span: span{end - len(v), end}, kind: byte(k), obj: top.obj, name: top.name}
			if kind == '{' && count%2 == 1 {
				l.key, l.name = true, ""
				top.name = unquote(v)
			}
			out = append(out, l)
		default:
			t, err := d.ReadToken()
			if err == io.EOF {
				return out, nil
			}
			if err != nil {
				return nil, err
			}
			switch t.Kind() {
			case '{':
				objects++
				stack = append(stack, level{obj: objects})
			case '[':
				stack = append(stack, level{name: top.name, obj: top.obj})
			case '}', ']':
				stack = stack[:len(stack)-1]
			}
		}
	}
}

func unquote(v []byte) string {
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return ""
	}
	return string(b)
}

// withheld is the JSON that stands for a value which could not be made safe leaf by leaf.
const withheld = `{"waldo":"withheld: a secret is spread over this value"}`

// json returns a JSON value with everything hidden in its strings, numbers and names; the rest
// stays byte for byte. What is no JSON, or holds a secret across its parts, is withheld whole.
func (p *pass) json(raw []byte) []byte {
	all, err := leaves(raw)
	if err != nil {
		return []byte(withheld)
	}
	person := p.persons(raw, all)
	binary := binaries(raw, all)
	var edits []edit
	for _, l := range all {
		old := string(raw[l.start:l.end])
		if l.kind == '"' {
			old = unquote(raw[l.start:l.end])
		}
		text := p.leaf(old, l, person[l.obj], binary[l.obj])
		if text != old {
			q, err := jsontext.AppendQuote(nil, text)
			if err != nil {
				return []byte(withheld)
			}
			edits = append(edits, edit{l.span, string(q)})
		}
	}
	out := []byte(apply(string(raw), edits))
	if p.known.has(out) {
		return []byte(withheld)
	}
	if len(edits) > 0 && !jsontext.Value(out).IsValid() { // two names became one
		return []byte(withheld)
	}
	return out
}

// leaf returns what is shown of one leaf.
func (p *pass) leaf(s string, l leaf, person, binary bool) string {
	switch {
	case binary && (l.name == "data" || l.name == "blob") && base64Only(s):
		return p.secretsOnly(s)
	case l.kind == '0':
		return p.numeral(s, l)
	case !l.key && secrecy([]byte(l.name)) == 2 && !placeholder([]byte(s)):
		return secretMask
	case !l.key && secrecy([]byte(l.name)) == 1 && random([]byte(s)):
		return secretMask
	case !l.key && p.classes[name] && (fullName(l.name) || person && flat(l.name) == "name") && len(s) <= 200 && strings.TrimSpace(s) != "" && p.token2(s):
		return p.mask(name, s)
	case !l.key && p.classes[phone] && phoneName(l.name) && digitsIn(s) >= 6 && digitsIn(s) <= 15 && len(s) <= 40:
		return p.mask(phone, s)
	case !l.key && p.classes[ssn] && slices.Contains([]string{"ssn", "socialsecuritynumber", "socialsecurity"}, flat(l.name)) && digitsIn(s) == 9:
		return p.mask(ssn, s)
	}
	return p.text(s)
}

// numeral hides a number that is personal data by its form, or by its field.
func (p *pass) numeral(s string, l leaf) string {
	switch {
	case secrecy([]byte(l.name)) == 2, p.known.short[s]:
		return secretMask
	case p.classes[phone] && phoneName(l.name) && digitsIn(s) >= 6:
		return p.mask(phone, s)
	case p.classes[ssn] && flat(l.name) == "ssn":
		return p.mask(ssn, s)
	case p.classes[card] && len(s) >= 15 && (&detector{v: []byte(s)}).isCard([]byte(s), []group{{0, len(s)}}) && digitsIn(s) == len(s):
		return p.mask(card, s)
	}
	return p.secretsOnly(s)
}

// secretsOnly hides known secrets and nothing else.
func (p *pass) secretsOnly(s string) string {
	if !p.known.has([]byte(s)) {
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

// token2 reports whether a name is text that may be hidden: no token already.
func (p *pass) token2(s string) bool { return !strings.HasPrefix(s, "[") }

func digitsIn(s string) (n int) {
	for i := range len(s) {
		if isDigit(s[i]) {
			n++
		}
	}
	return n
}

// flat returns a field's name in lower case without its signs.
func flat(s string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "", ".", "").Replace(strings.ToLower(s))
}

func phoneName(s string) bool {
	f := flat(s)
	for _, w := range []string{"phone", "mobile", "telephone", "cellphone", "fax", "phonenumber", "mobilenumber", "tel", "msisdn", "phoneno"} {
		if f == w || strings.HasSuffix(f, w) && len(w) > 3 {
			return true
		}
	}
	return false
}

func fullName(s string) bool {
	switch flat(s) {
	case "firstname", "lastname", "fullname", "givenname", "familyname", "middlename", "surname", "maidenname", "contactname", "customername", "patientname", "employeename", "cardholdername", "cardholder":
		return true
	}
	return false
}

// persons returns the objects that are about a person: those with a field that only people have.
// The plain field "name" holds a person's name in these alone.
func (p *pass) persons(raw []byte, all []leaf) map[int]bool {
	if !p.classes[name] {
		return nil
	}
	out := map[int]bool{}
	for _, l := range all {
		if !l.key {
			continue
		}
		switch f := flat(unquote(raw[l.start:l.end])); {
		case f == "email" || f == "emailaddress" || f == "mail" || f == "ssn" || f == "dateofbirth" || f == "birthdate" || f == "dob":
			out[l.obj] = true
		case phoneName(f), fullName(f):
			out[l.obj] = true
		}
	}
	return out
}

// binaries returns the objects that hold bytes in base64: content blocks and resources, which are
// told by their media type. Only known secrets are looked for in their bytes.
func binaries(raw []byte, all []leaf) map[int]bool {
	var out map[int]bool
	for _, l := range all {
		if l.key && string(raw[l.start:l.end]) == `"mimeType"` {
			if out == nil {
				out = map[int]bool{}
			}
			out[l.obj] = true
		}
	}
	return out
}
