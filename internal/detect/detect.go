// Package detect tells by its form what in a text is a secret or personal data: tokens of vendors, values given to the
// names of secrets, private keys, addresses and numbers of persons. Redaction, import, configuration, elicitation and
// the code in sandboxes share its data.
package detect

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"waldo/internal/detect/checkdigit"
	"waldo/internal/detect/words"
)

// Class is a sort of what is found: secrets, or a sort of personal data. It is the word of a contract.
type Class = string

// The classes that are told by their form. Name is told by a field of JSON alone.
const (
	Secrets Class = "secrets"
	Email   Class = "email"
	Phone   Class = "phone"
	SSN     Class = "ssn"
	Card    Class = "credit_card"
	Name    Class = "name"
	IBAN    Class = "iban"   // with a sound check
	Wallet  Class = "crypto" // addresses of Bitcoin
	IP      Class = "ip"     // version 4; both versions alone of addresses that can be reached from elsewhere
	IPv6    Class = "ipv6"
)

// Classes returns every class.
func Classes() []Class {
	return []Class{Secrets, Email, Phone, SSN, Card, Name, IBAN, Wallet, IP, IPv6}
}

// Find is a part of a text, from Start to before End, that shows a secret or personal data by its form.
type Find struct {
	Start, End int
	Class      Class
}

// In returns what a text shows by its form, in the order of the text: secrets, and the classes that are on.
func In(v []byte, on map[Class]bool) []Find {
	d := detector{v: v, on: on}
	for i := 0; i < len(v); {
		i = max(i+1, d.at(i))
	}
	return d.found
}

// Secret reports whether a text has a secret that shows by its form.
func Secret(s string) bool { return len(In([]byte(s), nil)) > 0 }

// detector walks over a view once.
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

// at looks at one place and returns where to go on.
func (d *detector) at(i int) int {
	switch c := d.v[i]; {
	case c == '@':
		return d.mail(i)
	case isDigit(c), c == '+', c == '(':
		return d.digits(i)
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
	for start > 0 && (isAlnum(d.v[start-1]) || d.v[start-1] >= 0x80 || strings.IndexByte("._%+-!#$*/?^`{|}~", d.v[start-1]) >= 0) {
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
	if start == i || dot < 2 || end-(i+dot) < 3 || isDigit(d.v[i+dot+1]) {
		return i + 1
	}
	if end < len(d.v) && d.v[end] == ':' && string(d.v[start:i]) == "git" {
		return end // git@github.com:x/y.git is a place, not a person
	}
	return d.add(start, end, Email)
}

// pem finds a private key in armour, up to its end line or as far as it goes.
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
	if body := d.v[i+10 : i+e]; len(body) < 120 && words.Filler(bytes.TrimLeft(body[bytes.Index(body, []byte("-----"))+5:], "\\nrs[] ")) {
		return i + e
	}
	return d.add(i, i+e+8+tail+5, Secrets)
}

// public returns the end of the base64 of a certificate or a public key in armour, whose header ends at i, or i.
func (d *detector) public(i int) int {
	end := i
	for end < len(d.v) && (d.v[end] == '-' && end < i+5 || d.v[end] == '\r' || d.v[end] == '\n' || base64Char(d.v[end]) || d.v[end] == '=' || d.v[end] == '_') && d.v[end] != '_' {
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

// mentioned reports whether the header of a key that ends at i is quoted by itself, as code does that looks for one.
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

// digits reads groups of digits from i, with at most three separators between, and says what they
// are.
func (d *detector) digits(i int) int {
	if !d.boundary(i) {
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

// classify says what the first n groups of digits from i are, or "".
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

// alone reports whether neither digits before i nor groups after the first n go on with the same
// number: only a space may part them, and only where the number itself has another separator.
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

// separators returns what stands between groups, and whether it is the same everywhere.
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

// issued are the first digits of payment cards that are given out, with the lengths of their numbers (ISO/IEC 7812,
// as the schemes publish them).
var issued = []struct{ from, to, least, most int }{
	{1800, 1800, 15, 15}, {2131, 2131, 15, 15}, {2221, 2720, 16, 16}, {3000, 3059, 14, 19}, {3095, 3095, 14, 19}, {3400, 3499, 15, 15},
	{3500, 3599, 16, 19}, {3600, 3699, 14, 19}, {3700, 3799, 15, 15}, {3800, 3999, 14, 19}, {4000, 4999, 13, 13}, {4000, 4999, 16, 16},
	{4000, 4999, 19, 19}, {5000, 5099, 12, 19}, {5100, 5599, 16, 16}, {5600, 5899, 12, 19}, {6000, 6999, 12, 19}, {8100, 8199, 16, 19},
}

// isCard accepts 12 to 19 digits of a payment card: first digits in use with their lengths, a sound check digit
// (ISO/IEC 7812-1), and the groups in which cards are printed, with one kind of separator.
func (d *detector) isCard(n []byte, gs []group) bool {
	if len(n) < 12 || len(n) > 19 || !checkdigit.Luhn(n) || !given(n) {
		return false
	}
	sep, same := d.separators(gs)
	if len(gs) == 1 {
		return !d.fraction(gs[0]) && !d.column(gs[0])
	}
	if !same || len(sep) > 1 || strings.IndexByte(" -.", sep[0]) < 0 || len(gs) < 3 || len(gs) > 5 {
		return false
	}
	for k, g := range gs[:len(gs)-1] { // numbers of an object identifier or a table are of any length
		if size := g.end - g.start; size != 4 && !(k == 1 && size >= 5 && size <= 7) {
			return false
		}
	}
	if last := gs[len(gs)-1]; last.end-last.start > 7 || last.end-last.start < 1 {
		return false
	}
	return sep != " " || !d.amid(gs)
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

// fraction reports whether digits are a part of a decimal number, before its point or behind it.
func (d *detector) fraction(g group) bool {
	return g.start > 1 && d.v[g.start-1] == '.' && isDigit(d.v[g.start-2]) ||
		g.end+1 < len(d.v) && d.v[g.end] == '.' && isDigit(d.v[g.end+1])
}

// amid reports whether groups of four digits go on before or behind, as in a row of a table, and are no further cards.
func (d *detector) amid(gs []group) bool {
	v, before, after := d.v, 0, 0
	four := func(i int) bool { // a group of four and no more from i
		return i >= 0 && i+4 <= len(v) && len(bytes.Trim(v[i:i+4], "0123456789")) == 0 &&
			(i == 0 || !isDigit(v[i-1])) && (i+4 == len(v) || !isDigit(v[i+4]))
	}
	for i := gs[0].start - 5; four(i) && v[i+4] == ' ' && before < 64; i -= 5 {
		before++
	}
	for i := gs[len(gs)-1].end + 1; four(i) && v[i-1] == ' ' && after < 64; i += 5 {
		after++
	}
	return before%len(gs) != 0 || after%len(gs) != 0
}

// column reports whether a number stands in a column of numbers that are no cards: of the fields above and below it in
// the same place of their lines, which are as long, more fail the check of a card than pass it.
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

// maxLine is how long a line of a table may be.
const maxLine = 4096

// lineOf returns where the line before i begins, or -1 where that is too far away.
func (d *detector) lineOf(i int) int {
	from := max(0, i-maxLine)
	if n := bytes.LastIndexByte(d.v[from:i], '\n'); n >= 0 {
		return from + n + 1
	} else if from > 0 {
		return -1
	}
	return 0
}

// fields counts the separators in the begin of a line. Blanks that follow one another are one.
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

// isSSN accepts a United States social security number: groups of three, two and four digits with
// numbers that are given out; without any separator only with a leading zero, since nine plain
// digits are more often something else.
func (d *detector) isSSN(i int, n []byte, gs []group) bool {
	if len(n) != 9 || string(n[:3]) == "000" || string(n[:3]) == "666" || n[0] == '9' || string(n[3:5]) == "00" || string(n[5:]) == "0000" {
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

// zip reports whether 5 and 4 digits at i are the postal code of a place in the United States: behind its state,
// or at the beginning of a line.
func (d *detector) zip(i, first int) bool {
	before := bytes.TrimRight(d.v[max(0, i-8):i], " \t*#/;")
	n := len(before)
	return first == 5 && (n == 0 || before[n-1] == '\n' || n >= 2 && (before[n-1] >= 'A' && before[n-1] <= 'Z') && (before[n-2] >= 'A' && before[n-2] <= 'Z') && (n == 2 || !isAlpha(before[n-3])))
}

// isIP accepts four numbers of at most 255 with dots between, of an address that can be reached
// from elsewhere: private and local ones tell of no person.
func (d *detector) isIP(gs []group) bool {
	if len(gs) != 4 {
		return false
	}
	text := d.v[gs[0].start:gs[3].end]
	a, err := netip.ParseAddr(string(text))
	return err == nil && reachable(a) && !(len(text) <= 10 && d.numbering(gs))
}

// numbering reports whether four numbers count the parts of a document or of a version: none above 39, or behind a
// word that says so, and no word that speaks of an address before them, and no port or prefix behind.
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
	return !d.says(gs[0].start, "ip", "ips", "ipv4", "addr", "address", "addresses", "host", "hosts", "server", "client", "peer", "from",
		"dns", "nameserver", "ping", "resolver", "inet", "remote", "gateway", "route", "via", "visitor", "login", "logged", "whois")
}

// says reports whether one of the words, in lower case, stands in the line shortly before a place.
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
	return !a.IsPrivate() && !a.IsLoopback() && !a.IsMulticast() && !(a.Is4() && (a.As4()[0] == 0 || a.As4()[0] == 255)) && !a.IsLinkLocalUnicast() && !a.IsUnspecified()
}

// isPhone accepts an international number, "+" and 7 to 15 digits, the usual national forms, and
// any 7 to 12 digits in groups where the words around speak of a telephone.
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
	if !alone || len(n) < 7 || len(n) > 15 || len(n) > 12 && string(n[:2]) != "00" {
		return false
	}
	return d.national(i, n, gs) || d.spoken(i, gs[len(gs)-1].end)
}
