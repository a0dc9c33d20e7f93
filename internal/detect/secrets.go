package detect

import (
	"bytes"
	"encoding/base64"
	"strings"
	"sync"
	"unicode/utf8"

	"waldo/internal/detect/data"
	"waldo/internal/detect/words"
)

// maxToken is the number of bytes of a value that are examined. The rest of a longer value, up to the next blank or
// quote, is hidden with it.
const maxToken = 256

// makers maps the first two bytes to the forms of vendor tokens.
var makers = sync.OnceValue(func() *[1 << 14][]data.Token {
	by := &[1 << 14][]data.Token{}
	for _, f := range data.Tokens() {
		k := pair(f.Prefix[0], f.Prefix[1])
		by[k] = append(by[k], f)
	}
	return by
})

// word examines a word that starts at i: a vendor token, a name with an assigned secret, or an account number with
// letters. It returns the next position.
func (d *detector) word(i int) int {
	if !d.boundary(i) {
		return d.skipAlnum(i)
	}
	if end := d.vendor(i); end > i {
		return end
	}
	end := i
	for end < len(d.v) && (isAlnum(d.v[end]) || d.v[end] == '_' || d.v[end] == '-' || d.v[end] == '.') && end-i < 128 {
		end++
	}
	if next := d.assigned(i, end); next > i {
		return next
	}
	if next := d.scheme(i, end); next > i {
		return next
	}
	if next := d.account(i); next > i {
		return next
	}
	return d.skipAlnum(i)
}

// vendor finds a vendor token, or a JSON Web Token (RFC 7519), at i.
func (d *detector) vendor(i int) int {
	if i+8 > len(d.v) {
		return i
	}
	if end := d.jwt(i); end > i {
		return d.add(i, d.rest(end, end-i), Secrets)
	}
	return d.made(i)
}

// embedded finds a token inside a word, with an unmistakable prefix that ends at i.
func (d *detector) embedded(i int) int {
	for _, p := range []string{"SG.", "tskey-", "ghp_", "glpat-", "xoxb-"} {
		if start := i + 1 - len(p); start >= 0 && string(d.v[start:i+1]) == p {
			if end := d.made(start); end > start {
				return end
			}
		}
	}
	return i
}

// Begins reports whether a text begins like a vendor token: a prefix with a separator or in distinctive capitals, and
// a later digit.
func Begins(s string) bool {
	for _, f := range data.Tokens() {
		if rest, ok := strings.CutPrefix(s, f.Prefix); ok && !loose(f.Prefix) && len(rest) >= 8 &&
			strings.ContainsAny(rest, "0123456789") {
			return true
		}
	}
	return false
}

// pair returns the index in makers for two first bytes.
func pair(a, b byte) int { return int(a&0x7f)<<7 | int(b&0x7f) }

// made finds a token of a known make at i.
func (d *detector) made(i int) int {
	if i+2 > len(d.v) {
		return i
	}
	for _, f := range makers()[pair(d.v[i], d.v[i+1])] {
		if !bytes.HasPrefix(d.v[i:], []byte(f.Prefix)) {
			continue
		}
		body := i + len(f.Prefix)
		end := body
		for end < min(len(d.v), body+maxToken) && (isAlnum(d.v[end]) || strings.IndexByte(f.More, d.v[end]) >= 0) {
			end++
		}
		if end-body >= f.Min && varied(d.v[body:end], f.Prefix) && !(loose(f.Prefix) && d.inBase64(i, end)) {
			return d.add(i, d.rest(end, end-i), Secrets)
		}
	}
	return i
}

// loose reports whether a prefix can occur in base64 by chance: at most four letters and digits, without a sign. JSON
// in base64 begins so too.
func loose(prefix string) bool {
	return len(prefix) <= 4 && !strings.ContainsAny(prefix, "-_.") && prefix != "ZXlK"
}

// inBase64 reports whether the token from i to end is part of longer base64: of a long line, or of adjacent lines.
func (d *detector) inBase64(i, end int) bool {
	start, stop := i, end
	for start > 0 && i-start < 100 && base64Char(d.v[start-1]) {
		start--
	}
	for stop < len(d.v) && stop-end < 100 && base64Char(d.v[stop]) {
		stop++
	}
	if i-start+stop-end >= 16 {
		return true
	}
	lines := 0
	for n := 1; n <= 40; n++ {
		if start-1-n >= 0 && d.v[start-1] == '\n' && base64Char(d.v[start-1-n]) {
			lines++
		}
		if stop+n < len(d.v) && d.v[stop] == '\n' && base64Char(d.v[stop+n]) {
			lines++
		}
	}
	return lines >= 40
}

func base64Char(c byte) bool { return isAlnum(c) || c == '+' || c == '/' }

// rest returns the end of the visible characters that continue a long value.
func (d *detector) rest(end, seen int) int {
	for seen >= maxToken-1 && end < len(d.v) && d.v[end] > ' ' && d.v[end] != '"' && d.v[end] != '\'' {
		end++
	}
	return end
}

// jwt returns the end of three base64url parts of which the first two are JSON objects.
func (d *detector) jwt(i int) int {
	end, dots := i, 0
	if !bytes.HasPrefix(d.v[i:], []byte("ey")) {
		return i
	}
	for end < min(len(d.v), i+maxToken) && dots < 5 && (isAlnum(d.v[end]) || strings.IndexByte("-_./\\=", d.v[end]) >= 0) {
		if d.v[end] == '.' {
			if dots++; dots == 1 && !bytes.HasPrefix(d.v[end+1:], []byte("ey")) {
				return i
			}
		}
		end++
	}
	if dots == 0 || dots == 1 && end-i < 60 || end-i < 30 {
		return i
	}
	return end
}

// varied reports whether a token looks random and not like a typed example.
func varied(body []byte, prefix string) bool {
	if strings.HasPrefix(prefix, "AP") || prefix == "AKC" { // JFrog documents only the form
		return !bytes.Equal(bytes.ToUpper(body), body) && !(words.Wordy(body) && words.Camel(body)) ||
			bytes.ContainsAny(body, "0123456789")
	}
	if prefix == "test_" || prefix == "live_" {
		return bytes.ContainsAny(body, "0123456789") && words.Kinds(body) >= 4
	}
	if prefix == "hf_" {
		return true
	}
	if len(prefix) < 3 && words.Wordy(body) && words.Camel(body) {
		return false // s.readUint16LengthPrefixed
	}
	if bytes.HasSuffix(body, []byte("EXAMPLE")) && len(body) < 20 || words.Filler(body) {
		return false
	}
	return words.Kinds(body) >= 4 && (len(prefix) > 2 || bytes.ContainsAny(body, "0123456789")) || len(prefix) >= 8
}

// folders are the shell's variable names for folders.
var folders = [][]byte{[]byte("pwd"), []byte("oldpwd"), []byte("passwd")}

// assigned finds the value given to a name that ends at end: name = value, "name": "value",
// name: value, name => value, --name value, <name>value.
func (d *detector) assigned(i, end int) int {
	for end > i && (d.v[end-1] == '.' || d.v[end-1] == '-') {
		end--
	}
	dashes := 0
	for dashes < 2 && i > dashes && d.v[i-1-dashes] == '-' {
		dashes++
	}
	if dashes > 0 && i > dashes && isAlnum(d.v[i-1-dashes]) {
		dashes = 0 // base-passwd contains a word, not a flag
	}
	start, sign, ok := d.operator(end, dashes > 0)
	if !ok {
		return i
	}
	level := words.Secrecy(d.v[i:end])
	if level == 0 || sign == "" && dashes < 2 && level < 2 { // -Token value is code, --token value a flag
		return i
	}
	start, stop := d.value(start)
	if d.elsewhere(i, end, start, stop) {
		return i
	}
	val := d.v[start:stop]
	quoted := start > 0 && strings.IndexByte("\"'`", d.v[start-1]) >= 0
	if !quoted && (words.Code(val) || d.called(stop) && words.Call(val) || d.prose(end, start, stop)) ||
		quoted && (words.Closing(val) || words.Named(val)) {
		return i
	}
	if name := d.v[i:end]; level == 1 && len(val) > 5 &&
		(bytes.HasSuffix(val, name) || bytes.HasSuffix(name, val)) || words.Titled(val, name) {
		return i // exports.TLogClient = TLogClient
	}
	if len(val) < 3 || Placeholder(val) || sign == "" && words.Follows(val) ||
		(level == 1 || sign == ",") && !Random(val) {
		return i
	}
	if s := d.authScheme(start, stop); s > start {
		start = s
	}
	return d.add(start, d.rest(stop, stop-start), Secrets)
}

// elsewhere reports whether the text around a name and its value rules out a secret: an included file, a shell's
// working directory, a passed test, or an unreadable file.
func (d *detector) elsewhere(i, end, start, stop int) bool {
	name, before := string(d.v[i:end]), d.v[:i]
	switch {
	case d.tagged(start) && !bytes.HasPrefix(bytes.TrimLeft(d.v[stop:], " \t\r\n"), []byte("</")):
		return true // #include <pwd.h>, and no <pwd>value</pwd>
	case bytes.HasPrefix(d.v[start:stop], []byte("/")) && words.HasWord(d.v[i:end], folders):
		return true
	case name == "PWD" || name == "OLDPWD": // of a connection, ;PWD=value
		return !bytes.HasSuffix(bytes.TrimRight(before, " "), []byte(";"))
	case name == "PASS":
		return bytes.HasSuffix(before, []byte("--- "))
	case name == "key":
		return bytes.HasSuffix(before, []byte("GPG ")) || bytes.HasSuffix(before, []byte("PGP "))
	}
	return name == "passwd" && bytes.HasSuffix(before, []byte("/etc/")) // cat: /etc/passwd: Permission denied
}

// called reports whether a value that ends at stop continues like call arguments.
func (d *detector) called(stop int) bool {
	return stop < len(d.v) && (d.v[stop] == ')' || d.v[stop] == ',')
}

// tagged reports whether a tag ends just before start.
func (d *detector) tagged(start int) bool {
	b := bytes.TrimRight(d.v[:start], " \t\r\n\"'`")
	return len(b) > 1 && b[len(b)-1] == '>' && b[len(b)-2] != '='
}

// types are type names between a variable and its value in source code.
var types = [][]byte{[]byte(": string"), []byte(":string"), []byte("string"), []byte("String"), []byte(": str")}

// operator skips the text between a name and its value. It returns the sign, and whether it assigns.
func (d *detector) operator(j int, flag bool) (next int, sign string, ok bool) {
	v, start := d.v, j
	for j < len(v) && strings.IndexByte(`"'])`, v[j]) >= 0 {
		j++
	}
	quoted := j > start
	j = d.blanks(j)
	for _, t := range types {
		if j == len(v) || v[j] != t[0] {
			continue
		}
		if after := d.blanks(j + len(t)); bytes.HasPrefix(v[j:], t) && after < len(v) && v[after] == '=' {
			j = after
			break
		}
	}
	signs := j
	for j < len(v) && j-signs < 5 && strings.IndexByte(":=>|,?.+", v[j]) >= 0 {
		j++
	}
	switch sign = string(v[signs:j]); {
	case sign == "" && !(flag && j > start && !quoted), sign == "." || sign == "?" || sign == "+" || sign == "..",
		sign == "," && !quoted, sign == "|" && (quoted || v[signs-1] > ' ' && j < len(v) && v[j] > ' '):
		return 0, "", false
	case sign == "||" && j < len(v) && v[d.blanks(j)] != '"' && v[d.blanks(j)] != '\'':
		return 0, "", false // code: either of two
	case sign == ">" && signs != start, sign == "?.", strings.HasPrefix(sign, "=,"):
		return 0, "", false
	case sign == ">":
		for j < len(v) && v[j] <= ' ' {
			j++
		}
	}
	j = d.blanks(j)
	return j, sign, j < len(v)
}

// blanks returns the first position from j that is not a space or tab.
func (d *detector) blanks(j int) int {
	for j < len(d.v) && (d.v[j] == ' ' || d.v[j] == '\t') {
		j++
	}
	return j
}

// value returns the quoted or bare value that begins at j.
func (d *detector) value(j int) (start, stop int) {
	v := d.v
	if q := v[j]; q == '"' || q == '\'' || q == '`' {
		end := j + 1
		for end < min(len(v), j+maxToken) && v[end] != q && v[end] != '\n' {
			end++
		}
		return j + 1, end
	}
	end := j
	for end < min(len(v), j+maxToken) && v[end] > ' ' && strings.IndexByte(`"'<>,;&)]}`, v[end]) < 0 {
		end++
	}
	return j, end
}

// authScheme skips "Bearer " and the like at the start of a value.
func (d *detector) authScheme(start, stop int) int {
	for _, s := range []string{"Bearer ", "Basic ", "Token ", "bearer ", "basic ", "token "} {
		if bytes.HasPrefix(d.v[start:stop], []byte(s)) {
			return start + len(s)
		}
	}
	return start
}

// Placeholder reports whether a value is a reference, a mask or an example instead of a secret.
func Placeholder(val []byte) bool {
	s := strings.ToLower(strings.TrimSpace(string(val)))
	switch s {
	case "", "null", "none", "nil", "true", "false", "undefined", "changeme", "example", "string", "required", "optional",
		"redacted", "masked", "hidden", "password", "secret", "token", "new", "await", "function", "this", "self",
		"str", "int", "bool",
		"pass", "passwd", "yes", "no", "foo", "bar", "include", "same-origin", "omit", "object", "number",
		"boolean", "username",
		"rejected", "accepted", "denied", "refused", "invalid", "incorrect", "wrong", "expired", "missing", "changed",
		"unchanged", "reset", "updated", "failed", "mismatch", "empty", "unset", "disabled", "enabled", "unknown":
		return true
	}
	if strings.HasPrefix(s, "$") || strings.HasPrefix(s, "<") || strings.HasPrefix(s, "{") || strings.HasPrefix(s, "[") ||
		strings.HasPrefix(s, "%(") {
		return true
	}
	if strings.Contains(s, "environ") || strings.Contains(s, "process.env") || strings.Contains(s, "getenv") ||
		strings.HasPrefix(s, "env:") || strings.HasPrefix(s, "secretref") {
		return true
	}
	if up := strings.ToUpper(string(val)); up == string(val) && !strings.ContainsAny(up, "0123456789") &&
		words.Secrecy(val) > 0 {
		return true // YOUR_API_KEY
	}
	if len(val) <= 4 && val[0] == '%' || utf8.RuneCount(val) < 3 {
		return true // %#v
	}
	return words.Filler(val) || strings.Trim(s, ".-") == "" || words.Version(s)
}

// Random reports whether a value of a weak name looks random: at least twelve characters, with digits, and not a
// number, a date or a path.
func Random(val []byte) bool {
	if len(val) < 12 || bytes.ContainsAny(val, " \t") {
		return false
	}
	digits, letters := 0, 0
	for _, c := range val {
		if isDigit(c) {
			digits++
		} else if isAlpha(c) {
			letters++
		}
	}
	if words.Kinds(val) < 6 || words.Public(val) || digits == 0 || words.Wordy(val) ||
		bytes.Contains(val, []byte("://")) || bytes.HasPrefix(val, []byte("/")) {
		return false
	}
	return letters > 0 || len(val) >= 16 && digits == len(val)
}

// scheme finds the credential after "Bearer " or "Basic ". After "Basic" it must be base64 (RFC 7617) or look random.
func (d *detector) scheme(i, end int) int {
	if d.v[i]|0x20 != 'b' {
		return i
	}
	w := string(d.v[i:end])
	basic := strings.EqualFold(w, "basic")
	if !strings.EqualFold(w, "bearer") && !basic || end+9 > len(d.v) || d.v[end] != ' ' {
		return i
	}
	stop := end + 1
	for stop < len(d.v) && (isAlnum(d.v[stop]) || strings.IndexByte("-._~+/=!", d.v[stop]) >= 0) {
		stop++
	}
	val := d.v[end+1 : stop]
	plain := !bytes.ContainsAny(val, "0123456789+/=") || basic && (words.Wordy(val) || len(val) < 12)
	if stop-end < 8 || plain && !(basic && pairOf(val)) || bytes.HasPrefix(val, []byte("realm=")) {
		return i
	}
	return d.add(end+1, stop, Secrets)
}

// pairOf reports whether val is the base64 of a user and a password.
func pairOf(val []byte) bool {
	var buf [256]byte
	if len(val) > len(buf) {
		return true
	}
	n, err := base64.RawStdEncoding.Decode(buf[:], bytes.TrimRight(val, "="))
	printable := func(r rune) bool { return r >= ' ' && r != utf8.RuneError }
	return err == nil && bytes.IndexByte(buf[:n], ':') >= 0 && len(bytes.TrimFunc(buf[:n], printable)) == 0
}

// user finds the user:password after curl's -u or --user at i.
func (d *detector) user(i int) int {
	var j int
	switch {
	case bytes.HasPrefix(d.v[i:], []byte("-u ")):
		j = i + 3
	case bytes.HasPrefix(d.v[i:], []byte("--user ")):
		j = i + 7
	default:
		return i + 1
	}
	if !bytes.Contains(d.v[max(0, i-200):i], []byte("curl ")) {
		return i + 1
	}
	if j = d.blanks(j); j >= len(d.v) {
		return i + 1
	}
	start, stop := d.value(j)
	if stop < len(d.v) && d.v[stop-1] == ':' && (d.v[stop] == '\'' || d.v[stop] == '"') { // name:'password'
		_, stop = d.value(stop)
	}
	if colon := bytes.IndexByte(d.v[start:stop], ':'); colon < 0 || Placeholder(d.v[start+colon+1:stop]) &&
		Placeholder(d.v[start:start+colon]) {
		return i + 1
	}
	return d.add(start, stop, Secrets)
}

// azure finds a client secret of Entra ID around the "8Q~" that ends at i.
func (d *detector) azure(i int) int {
	end := i + 1
	for end < min(len(d.v), i+50) && (isAlnum(d.v[end]) || strings.IndexByte("_~.-", d.v[end]) >= 0) {
		end++
	}
	if end-i < 31 || end-i > 40 {
		return i + 1
	}
	return d.add(i-5, end, Secrets)
}

// numbered finds tokens that begin with a number: of a Telegram bot or a Facebook app.
func (d *detector) numbered(i int, g group) int {
	n := g.end - g.start
	if g.start != i || n < 5 || n > 16 || g.end+28 > len(d.v) {
		return i
	}
	end := g.end + 1
	for end < min(len(d.v), i+100) && (isAlnum(d.v[end]) || d.v[end] == '_' || d.v[end] == '-') {
		end++
	}
	size := end - g.end - 1
	if d.v[g.end] == ':' && d.v[g.end+1] == 'A' && size >= 33 && size <= 36 || d.v[g.end] == '|' && n >= 15 && size >= 27 {
		return d.add(i, end, Secrets)
	}
	return i
}

// prose reports whether the bare value at start is a plain word or a short number in prose. The forms NAME=value and
// --name value, and a value alone to its line end, are not prose.
func (d *detector) prose(end, start, stop int) bool {
	letters, digits := 0, 0
	for _, c := range d.v[start:stop] {
		switch {
		case isAlpha(c) || c == '.' || c == '/' || c == '-' || c == '(' || c == ':':
			letters++
		case isDigit(c):
			digits++
		default:
			return false
		}
	}
	if letters > 0 && digits > 0 || digits > 6 {
		return false
	}
	after := byte('\n')
	if stop < len(d.v) {
		after = d.v[stop]
	}
	switch sign := string(bytes.Trim(d.v[end:start], " \t")); {
	case sign == "": // --password value
		return false
	case sign == "=" && start == end+1:
		return after == ',' || after == ')'
	case sign == ":" && after == '\n' && letters >= 8: // YAML
		return !bytes.Equal(d.v[start:stop], bytes.ToLower(d.v[start:stop]))
	}
	return true
}
