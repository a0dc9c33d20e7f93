// Package detect recognises secrets and personal data by their form: vendor tokens, values of secret names, private
// keys, addresses, and personal numbers. Redaction, import, configuration, elicitation and the code in sandboxes
// share its data.
package detect

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"waldo/internal/detect/checkdigit"
	"waldo/internal/detect/words"
)

// Class is a kind of finding: secrets, or a kind of personal data. Contracts use the same words.
type Class = string

// The classes recognised by their form. Name is recognised by a JSON field only.
const (
	Secrets Class = "secrets"
	Email   Class = "email"
	Phone   Class = "phone"
	SSN     Class = "ssn"
	Card    Class = "credit_card"
	Name    Class = "name"
	IBAN    Class = "iban"   // with a valid checksum
	Wallet  Class = "crypto" // addresses of Bitcoin
	IP      Class = "ip"     // versions 4 and 6; public addresses only
	IPv6    Class = "ipv6"
)

// Classes returns every class.
func Classes() []Class {
	return []Class{Secrets, Email, Phone, SSN, Card, Name, IBAN, Wallet, IP, IPv6}
}

// Find is the range from Start to before End of a text that has the form of a secret or personal data.
type Find struct {
	Start, End int
	Class      Class
}

// In returns the findings of a text in order: secrets, and the enabled classes.
func In(v []byte, on map[Class]bool) []Find {
	d := detector{v: v, on: on}
	for i := 0; i < len(v); {
		i = max(i+1, d.at(i))
	}
	return d.found
}

// Secret reports whether a text has a secret that shows by its form.
func Secret(s string) bool { return len(In([]byte(s), nil)) > 0 }

// detector scans a view once.
type detector struct {
	v     []byte
	on    map[Class]bool
	found []Find
	room  [10]group // of groups
	digit [40]byte  // of classify
}

func (d *detector) add(start, end int, c Class) int {
	if c == Secrets || d.on[c] {
		d.found = append(d.found, Find{start, end, c})
	}
	return end
}

// at examines one position and returns the next one.
func (d *detector) at(i int) int {
	switch c := d.v[i]; {
	case c == '@':
		return d.mail(i)
	case isDigit(c), c == '+', c == '(':
		return d.digits(i)
	case c == 'B' && d.track(i+1):
		return i + 1
	case isAlpha(c):
		return d.word(i)
	case c == '-' && bytes.HasPrefix(d.v[i:], []byte("-----BEGIN")):
		return d.pem(i)
	case c == '-' || c == '.' || c == '_':
		if end := d.embedded(i); end > i {
			return end
		}
		return d.user(i)
	case c == '~' && i >= 5 && d.v[i-1] == 'Q' && isDigit(d.v[i-2]):
		return d.azure(i)
	case c == ':' && bytes.HasPrefix(d.v[i:], []byte("://")):
		return d.userinfo(i)
	}
	return i + 1
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isAlpha(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isAlnum(c byte) bool { return isDigit(c) || isAlpha(c) }

// mail finds an address around the @ at i.
func (d *detector) mail(i int) int {
	start, end := i, i+1
	for start > 0 && (isAlnum(d.v[start-1]) || d.v[start-1] >= 0x80 ||
		strings.IndexByte("._%+-!#$*/?^`{|}~", d.v[start-1]) >= 0) {
		start--
	}
	for start < i && strings.IndexByte("./?#!*-", d.v[start]) >= 0 {
		start++
	}
	for end < len(d.v) && (isAlnum(d.v[end]) || d.v[end] >= 0x80 || d.v[end] == '.' || d.v[end] == '-') {
		end++
	}
	for end > i+1 && (d.v[end-1] == '.' || d.v[end-1] == '-') {
		end--
	}
	dot := bytes.LastIndexByte(d.v[i:end], '.')
	if start == i && i > 1 && d.v[i-1] == '"' { // a quoted local part
		if q := bytes.LastIndexByte(d.v[max(0, i-66):i-1], '"'); q >= 0 {
			start = max(0, i-66) + q
		}
	}
	if start == i || dot < 2 || end-(i+dot) < 3 || isDigit(d.v[i+dot+1]) || release(d.v[i+1:end]) {
		return i + 1
	}
	if end < len(d.v) && d.v[end] == ':' && string(d.v[start:i]) == "git" {
		return end // git@github.com:x/y.git is a place, not a person
	}
	return d.add(start, end, Email)
}

// release reports whether the text behind an @ is a version or a size of a file: v0.0.1-go1.99.linux, 2x.png.
func release(host []byte) bool {
	n := 0
	for n < len(host) && (isDigit(host[n]) || n == 0 && host[n] == 'v') {
		n++
	}
	if n == 0 || n == 1 && host[0] == 'v' {
		return false
	}
	if n+1 < len(host) && host[n] == '.' && isDigit(host[n+1]) {
		return true
	}
	name, kind, _ := bytes.Cut(host, []byte("."))
	return len(name) <= n+1 && slices.Contains([]string{"png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "tar", "tar.gz",
		"tgz", "gz", "xz"}, strings.ToLower(string(kind)))
}

// pem finds an armoured private key, up to its end line or the end of its data.
func (d *detector) pem(i int) int {
	line := d.v[i:min(len(d.v), i+100)]
	if e := bytes.Index(line[10:], []byte("-----")); e < 0 || !bytes.Contains(line[:10+e], []byte("PRIVATE KEY")) {
		return max(i+10, d.public(i+10+max(0, e)))
	} else if d.mentioned(i + 15 + e) {
		return i + 15 + e
	}
	e := bytes.Index(d.v[i:], []byte("-----END"))
	if e < 0 {
		return d.add(i, len(d.v), Secrets)
	}
	tail := bytes.Index(d.v[i+e+8:], []byte("-----"))
	if tail < 0 {
		return d.add(i, len(d.v), Secrets)
	}
	if body := d.v[i+10 : i+e]; len(body) < 120 &&
		words.Filler(bytes.TrimLeft(body[bytes.Index(body, []byte("-----"))+5:], "\\nrs[] ")) {
		return i + e
	}
	return d.add(i, i+e+8+tail+5, Secrets)
}

// public returns the end of the base64 of a certificate or a public key in armour, whose header ends at i, or i.
func (d *detector) public(i int) int {
	end := i
	for end < len(d.v) && (d.v[end] == '-' && end < i+5 || d.v[end] == '\r' || d.v[end] == '\n' || base64Char(d.v[end]) ||
		d.v[end] == '=' || d.v[end] == '_') && d.v[end] != '_' {
		if d.v[end] == '-' && end >= i+5 {
			break
		}
		end++
	}
	if bytes.HasPrefix(d.v[end:], []byte("-----END")) {
		return end
	}
	return i
}

// mentioned reports whether the key header that ends at i is quoted alone, as in code that searches for one.
func (d *detector) mentioned(i int) bool {
	if i >= len(d.v) || strings.IndexByte("\"'`", d.v[i]) < 0 {
		return false
	}
	run := 0
	for _, c := range d.v[i:min(len(d.v), i+200)] {
		if run++; !isAlnum(c) && c != '+' && c != '/' {
			run = 0
		}
		if run >= 24 {
			return false
		}
	}
	return true
}

// userinfo finds the password in scheme://user:password@host.
func (d *detector) userinfo(i int) int {
	start := i + 3
	end := start
	for end < len(d.v) && end-start < 512 && d.v[end] > ' ' && strings.IndexByte("/\"'<>", d.v[end]) < 0 {
		end++
	}
	at := bytes.LastIndexByte(d.v[start:end], '@')
	colon := bytes.IndexByte(d.v[start:end], ':')
	if at < 0 || colon < 0 || colon > at || at-colon < 2 || d.v[start] == '(' || Placeholder(d.v[start+colon+1:start+at]) {
		return start
	}
	return d.add(start+colon+1, start+at, Secrets)
}

// boundary reports whether a word may start at i.
func (d *detector) boundary(i int) bool { return i == 0 || !isAlnum(d.v[i-1]) }

// CardNumber reports whether digits are the number of a payment card.
func CardNumber(digits []byte) bool {
	return (&detector{v: digits}).isCard(digits, []group{{0, len(digits)}})
}

// group is a run of digits.
type group struct{ start, end int }

// digits reads groups of digits from i, with at most three separators between, and classifies them.
func (d *detector) digits(i int) int {
	if !d.boundary(i) && !d.track(i) {
		return d.skipAlnum(i)
	}
	if end := d.account(i); end > i {
		return end
	}
	gs := d.groups(i)
	if len(gs) == 0 {
		return i + 1
	}
	skip := i + 1
	if gs[0].start == i {
		skip = gs[0].end
	}
	if end := d.numbered(i, gs[0]); end > i {
		return end
	}
	for n := len(gs); n > 0; n-- {
		end := d.extension(gs[n-1].end)
		if end < len(d.v) && (isAlpha(d.v[end]) || d.v[end] == '_') {
			continue
		}
		if c := d.classify(i, gs, n); c != "" && d.on[c] {
			return d.add(i, end, c)
		}
	}
	return skip
}

// track reports whether the digits from i are on the first track of a card: %B4111…^NAME.
func (d *detector) track(i int) bool { return i > 1 && d.v[i-1] == 'B' && d.v[i-2] == '%' }

// extension returns the end of the "x123" after a telephone number, or end itself.
func (d *detector) extension(end int) int {
	if end+1 >= len(d.v) || d.v[end] != 'x' || !isDigit(d.v[end+1]) {
		return end
	}
	return d.skipAlnum(end + 1)
}

func (d *detector) skipAlnum(i int) int {
	for i < len(d.v) && isAlnum(d.v[i]) {
		i++
	}
	return i
}

func (d *detector) groups(i int) []group {
	gs := d.room[:0]
	for j := i; j < len(d.v) && len(gs) < 10; {
		sep := j
		for j < len(d.v) && j-sep < 3 && strings.IndexByte(" -.()+/\t", d.v[j]) >= 0 {
			j++
		}
		start := j
		for j < len(d.v) && isDigit(d.v[j]) {
			j++
		}
		if j == start {
			break
		}
		gs = append(gs, group{start, j})
	}
	return gs
}

// classify returns the class of the first n groups of digits from i, or "".
func (d *detector) classify(i int, all []group, n int) Class {
	gs := all[:n]
	digits := d.digit[:0]
	for _, g := range gs {
		if len(digits)+g.end-g.start > len(d.digit) {
			return ""
		}
		digits = append(digits, d.v[g.start:g.end]...)
	}
	alone := d.alone(i, all, n)
	switch {
	case d.isCard(digits, gs):
		return Card
	case alone && d.isSSN(i, digits, gs):
		return SSN
	case alone && d.isIP(gs):
		return IP
	case d.isPhone(i, digits, gs, alone):
		return Phone
	}
	return ""
}

// alone reports whether the number ends at its groups: no digits before i, and no groups after the first n, continue
// it. A space ends a number that has another separator itself.
func (d *detector) alone(i int, all []group, n int) bool {
	spaced := n > 1 && d.v[all[0].end] != ' '
	if n < len(all) && !(spaced && d.v[all[n-1].end] == ' ') {
		return false
	}
	if i < 2 || !isDigit(d.v[i-2]) {
		return true
	}
	return strings.IndexByte(" -.:/,+", d.v[i-1]) < 0 || spaced && d.v[i-1] == ' '
}

// separators returns the text between groups, and whether it is the same everywhere.
func (d *detector) separators(gs []group) (string, bool) {
	sep := ""
	for k := 1; k < len(gs); k++ {
		s := string(d.v[gs[k-1].end:gs[k].start])
		if k > 1 && s != sep {
			return "", false
		}
		sep = s
	}
	return sep, true
}

// issued lists the prefixes of issued payment cards, with the lengths of their numbers (ISO/IEC 7812, as the schemes
// publish them).
var issued = []struct{ from, to, least, most int }{
	{1800, 1800, 15, 15}, {2131, 2131, 15, 15}, {2221, 2720, 16, 16}, {3000, 3059, 14, 19}, {3095, 3095, 14, 19},
	{3400, 3499, 15, 15}, {3500, 3599, 16, 19}, {3600, 3699, 14, 19}, {3700, 3799, 15, 15}, {3800, 3999, 14, 19},
	{4000, 4999, 13, 13}, {4000, 4999, 16, 16}, {4000, 4999, 19, 19}, {5000, 5099, 12, 19}, {5100, 5599, 16, 16},
	{5600, 5899, 12, 19}, {6000, 6999, 12, 19}, {8100, 8199, 16, 19},
}

// isCard accepts the 12 to 19 digits of a payment card. It requires an issued prefix with its length, printed card groups
// with one kind of separator, and a valid check digit (ISO/IEC 7812-1): four groups of four with dashes need none. The
// scrub functions of sandboxes have the same rules.
func (d *detector) isCard(n []byte, gs []group) bool {
	if len(n) < 12 || len(n) > 19 || !given(n) {
		return false
	}
	sep, same := d.separators(gs)
	dashed := len(gs) == 4 && len(n) == 16 && same && sep == "-"
	if !dashed && !checkdigit.Luhn(n) {
		return false
	}
	if len(gs) == 1 {
		return !d.fraction(gs[0]) && !d.column(gs[0])
	}
	if !same || !slices.Contains([]string{" ", "  ", "-", ".", "+"}, sep) || len(gs) < 3 || len(gs) > 5 {
		return false
	}
	if start, end := gs[0].start, gs[len(gs)-1].end; sep == "." && start > 0 && d.v[start-1] == '.' ||
		dashed && (start > 0 && d.v[start-1] == '-' || end < len(d.v) && d.v[end] == '-') {
		return false // a part of a longer number
	}
	for k, g := range gs[:len(gs)-1] { // numbers of an object identifier or a table are of any length
		if size := g.end - g.start; size != 4 && !(k == 1 && size >= 5 && size <= 7) {
			return false
		}
	}
	if last := gs[len(gs)-1]; last.end-last.start > 7 || last.end-last.start < 1 {
		return false
	}
	return sep[0] != ' ' || !d.amid(gs, len(sep))
}

func given(n []byte) bool {
	lead := int(n[0]-'0')*1000 + int(n[1]-'0')*100 + int(n[2]-'0')*10 + int(n[3]-'0')
	for _, r := range issued {
		if lead >= r.from && lead <= r.to && len(n) >= r.least && len(n) <= r.most {
			return true
		}
	}
	return false
}

// fraction reports whether digits are part of a decimal number, before or after its point. Zeros behind the point are
// none: a table with an empty cell writes its whole numbers so.
func (d *detector) fraction(g group) bool {
	if g.start > 1 && d.v[g.start-1] == '.' && isDigit(d.v[g.start-2]) {
		return true
	}
	if g.end+1 >= len(d.v) || d.v[g.end] != '.' || !isDigit(d.v[g.end+1]) {
		return false
	}
	zeros := g.end + 1
	for zeros < len(d.v) && d.v[zeros] == '0' {
		zeros++
	}
	return zeros < len(d.v) && isAlnum(d.v[zeros])
}

// amid reports whether groups of four digits continue before or after, as in a table row, without being further
// cards.
func (d *detector) amid(gs []group, blanks int) bool {
	v, before, after := d.v, 0, 0
	four := func(i int) bool { // a group of four and no more from i
		return i >= 0 && i+4 <= len(v) && len(bytes.Trim(v[i:i+4], "0123456789")) == 0 &&
			(i == 0 || !isDigit(v[i-1])) && (i+4 == len(v) || !isDigit(v[i+4]))
	}
	step := 4 + blanks
	for i := gs[0].start - step; four(i) && v[i+4] == ' ' && before < 64; i -= step {
		before++
	}
	for i := gs[len(gs)-1].end + blanks; four(i) && v[i-1] == ' ' && after < 64; i += step {
		after++
	}
	return before%len(gs) != 0 || after%len(gs) != 0
}

// column reports whether a number is in a column of ordinary numbers. It compares fields of the same length above and
// below: more of them must fail the card check than pass it.
func (d *detector) column(g group) bool {
	v := d.v
	sep, end := byte(0), g.end
	for end < len(v) && (v[end] == ' ' || v[end] == '"') {
		end++
	}
	line := d.lineOf(g.start)
	if line < 0 {
		return false
	}
	switch {
	case end < len(v) && strings.IndexByte(",;|\t", v[end]) >= 0:
		sep = v[end]
	case line < g.start && strings.IndexByte(",;|\t", v[g.start-1]) >= 0:
		sep = v[g.start-1]
	case end > g.end || g.start > line && v[g.start-1] == ' ':
		sep = ' '
	}
	at := fields(v[line:g.start], sep)
	pass, fail := 0, 0
	judge := func(l []byte) {
		f, size := field(l, sep, at), g.end-g.start
		if len(f) >= size-1 && len(f) <= size+1 && len(bytes.Trim(f, "0123456789")) == 0 {
			if checkdigit.Luhn(f) && given(f) {
				pass++
			} else {
				fail++
			}
		}
	}
	const near = 4 // lines each way
	for n, e := 0, line; n < near && e > 0; n++ {
		s := d.lineOf(e - 1)
		if s < 0 {
			break
		}
		judge(v[s : e-1])
		e = s
	}
	for n, at := 0, g.end; n < near && at < len(v); n++ {
		next := bytes.IndexByte(v[at:min(len(v), at+maxLine)], '\n')
		if next < 0 {
			break
		}
		at += next + 1
		rest := v[at:min(len(v), at+maxLine)]
		if e := bytes.IndexByte(rest, '\n'); e >= 0 {
			rest = rest[:e]
		}
		judge(rest)
	}
	return fail > 1 && fail > pass
}

// maxLine is the longest table line examined, in bytes.
const maxLine = 4096

// lineOf returns the start of the line before i, or -1 if it is too far away.
func (d *detector) lineOf(i int) int {
	from := max(0, i-maxLine)
	if n := bytes.LastIndexByte(d.v[from:i], '\n'); n >= 0 {
		return from + n + 1
	} else if from > 0 {
		return -1
	}
	return 0
}

// fields counts the separators at the start of a line. A run of blanks counts once.
func fields(b []byte, sep byte) (n int) {
	for i, c := range b {
		if c == sep && !(sep == ' ' && i > 0 && b[i-1] == ' ') {
			n++
		}
	}
	return n
}

// field returns the field of a line behind n separators, without blanks and quotes.
func field(line []byte, sep byte, n int) []byte {
	for i := 0; i < len(line); i++ {
		if n == 0 {
			rest := line[i:]
			if e := bytes.IndexByte(bytes.TrimLeft(rest, " "), sep); e >= 0 {
				rest = bytes.TrimLeft(rest, " ")[:e]
			}
			return bytes.Trim(rest, " \"\r")
		}
		if line[i] == sep && !(sep == ' ' && i > 0 && line[i-1] == ' ') {
			n--
		}
	}
	return nil
}

// isSSN accepts a United States social security number: issued groups of three, two and four digits. Without
// separators it requires a leading zero, since nine plain digits usually mean something else.
func (d *detector) isSSN(i int, n []byte, gs []group) bool {
	if len(n) != 9 || string(n[:3]) == "000" || string(n[:3]) == "666" || n[0] == '9' || string(n[3:5]) == "00" ||
		string(n[5:]) == "0000" {
		return false
	}
	sep, same := d.separators(gs)
	if len(gs) > 1 && (!same || !slices.Contains([]string{"-", " ", "."}, sep)) {
		return false
	}
	var size []int
	for _, g := range gs {
		size = append(size, g.end-g.start)
	}
	switch {
	case slices.Equal(size, []int{3, 2, 4}):
		return true
	case slices.Equal(size, []int{3, 6}), slices.Equal(size, []int{5, 4}):
		return sep == "-" && n[0] == '0' && !d.zip(i, size[0])
	}
	return len(gs) == 1 && n[0] == '0' && (i == 0 || d.v[i-1] != '/')
}

// zip reports whether 5 and 4 digits at i are a United States postal code: after its state, or at the start of a
// line.
func (d *detector) zip(i, first int) bool {
	before := bytes.TrimRight(d.v[max(0, i-8):i], " \t*#/;")
	n := len(before)
	return first == 5 && (n == 0 || before[n-1] == '\n' || n >= 2 && (before[n-1] >= 'A' && before[n-1] <= 'Z') &&
		(before[n-2] >= 'A' && before[n-2] <= 'Z') && (n == 2 || !isAlpha(before[n-3])))
}

// isIP accepts four numbers of at most 255 with dots between, of a public address. Private and local addresses
// identify no person.
func (d *detector) isIP(gs []group) bool {
	if len(gs) != 4 {
		return false
	}
	text := d.v[gs[0].start:gs[3].end]
	a, err := netip.ParseAddr(string(text))
	return err == nil && reachable(a) && !(len(text) <= 10 && d.numbering(gs))
}

// numbering reports whether four numbers are a section or version number. It requires numbers below 40, no port or
// prefix after them, and no word about addresses before them.
func (d *detector) numbering(gs []group) bool {
	small := true
	for _, g := range gs {
		small = small && (g.end-g.start == 1 || g.end-g.start == 2 && d.v[g.start] < '4')
	}
	if !small {
		return false
	}
	if end := gs[3].end; end+1 < len(d.v) && (d.v[end] == ':' || d.v[end] == '/') && isDigit(d.v[end+1]) {
		return false
	}
	return !d.says(gs[0].start, "ip", "ips", "ipv4", "addr", "address", "addresses", "host", "hosts", "server",
		"client", "peer", "from",
		"dns", "nameserver", "ping", "resolver", "inet", "remote", "gateway", "route", "via", "visitor",
		"login", "logged", "whois")
}

// says reports whether one of the lower-case words is in the line shortly before a position.
func (d *detector) says(at int, words ...string) bool {
	before := d.v[max(0, at-28):at]
	before = before[bytes.LastIndexByte(before, '\n')+1:]
	for len(before) > 0 {
		n := 0
		for n < len(before) && isAlnum(before[n]) {
			n++
		}
		if n > 0 && slices.Contains(words, strings.ToLower(string(before[:n]))) {
			return true
		}
		before = before[min(n+1, len(before)):]
	}
	return false
}

func reachable(a netip.Addr) bool {
	return !a.IsPrivate() && !a.IsLoopback() && !a.IsMulticast() && !(a.Is4() && (a.As4()[0] == 0 || a.As4()[0] == 255)) &&
		!a.IsLinkLocalUnicast() && !a.IsUnspecified()
}

// isPhone accepts an international number ("+" and 7 to 15 digits), the usual national forms, and any 7 to 12 digits if
// nearby words mention a telephone. A word that means nothing else allows 15 digits.
func (d *detector) isPhone(i int, n []byte, gs []group, alone bool) bool {
	if d.v[i] == '+' {
		if i > 0 && (d.v[i-1] == '+' || d.v[i-1] == '-') || d.v[gs[0].start] == '0' {
			return false // C++20 20.10.6
		}
		if sums := bytes.IndexByte(d.v[gs[0].end:gs[len(gs)-1].end], '+') >= 0; sums || len(gs) == 1 && d.fraction(gs[0]) {
			return false
		}
		term := bytes.TrimRight(d.v[max(0, i-4):i], " ")
		if n := len(term); gs[0].start == i+2 && d.v[i+1] == ' ' && n > 0 && (isAlnum(term[n-1]) || term[n-1] == ')') {
			return false // x + 12 34567
		}
		return gs[0].start <= i+2 && len(n) >= 7 && len(n) <= 15
	}
	if !alone || len(n) < 7 || len(n) > 15 {
		return false
	}
	if len(n) > 12 && string(n[:2]) != "00" {
		return d.says(i, telephone...)
	}
	return d.national(i, n, gs) || d.spoken(i, gs[len(gs)-1].end)
}
