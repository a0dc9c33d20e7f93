package redact

import (
	"bytes"
	"strings"
	"sync"
)

// maxToken is how many bytes of a value are looked at to tell whether it is a secret. The rest of a
// longer one, up to the next blank or quote, is hidden with it.
const maxToken = 256

// form is one vendor's form of a secret: a prefix, then at least min characters of the alphabet.
type form struct {
	prefix string
	more   string // characters of the rest besides letters and digits
	min    int
}

// makes are the prefixes that vendors document for their keys and tokens. The sources are the
// vendors' own pages; the lengths are the shortest seen, so that a longer kind is not missed.
var makes = sync.OnceValue(func() *[1 << 14][]form {
	all := []form{
		{"ghp_", "_", 30}, {"gho_", "_", 30}, {"ghu_", "_", 30}, {"ghs_", "_", 30}, {"ghr_", "_", 30}, {"github_pat_", "_", 30},
		{"glpat-", "-_.", 18}, {"gldt-", "-_", 18}, {"glrt-", "-_.", 18}, {"glft-", "-_", 18}, {"glptt-", "-_", 30}, {"glagent-", "-_", 30},
		{"gloas-", "-_", 30}, {"glsoat-", "-_", 18}, {"glimt-", "-_", 18}, {"glffct-", "-_", 18}, {"glcbt-", "-_.", 18}, {"GR1348941", "-_", 20},
		{"AKIA", "", 16}, {"ASIA", "", 16}, {"ABIA", "", 16}, {"ACCA", "", 16}, {"ABSK", "+/=", 60}, {"LTAI", "", 17},
		{"xoxb-", "-", 10}, {"xoxp-", "-", 10}, {"xoxa-", "-", 8}, {"xoxr-", "-", 8}, {"xoxs-", "-", 10}, {"xoxo-", "-", 8}, {"xoxe-", "-", 20}, {"xoxe.", ".-", 20}, {"xapp-", "-", 20},
		{"sk_live_", "", 10}, {"sk_test_", "", 10}, {"rk_live_", "", 10}, {"rk_test_", "", 10}, {"sk_prod_", "", 10}, {"rk_prod_", "", 10}, {"whsec_", "+/=", 20},
		{"sk-", "-_", 20}, {"SG.", "-_.=", 40}, {"hf_", "", 30}, {"api_org_", "", 30}, {"npm_", "", 30}, {"pypi-", "-_", 40}, {"rubygems_", "", 40},
		{"dop_v1_", "", 40}, {"doo_v1_", "", 40}, {"dor_v1_", "", 40}, {"dp.", ".", 36}, {"duffel_", "_-=", 40},
		{"EZAK", "", 50}, {"EZTK", "", 50}, {"FLWPUBK_TEST-", "-", 10}, {"FLWSECK_TEST-", "-", 10}, {"fo1_", "-_", 40}, {"fm1", "-_+/=", 90}, {"fm2_", "-_+/=", 90},
		{"glc_", "+/=", 30}, {"glsa_", "_", 36}, {"NRAK-", "-", 20}, {"NRII-", "-", 20}, {"NRJS-", "-", 15}, {"ntn_", "", 40}, {"secret_", "", 40},
		{"pscale_pw_", "-_=.", 30}, {"pscale_tkn_", "-_=.", 30}, {"pscale_oauth_", "-_=.", 30}, {"PMAK-", "-", 50}, {"rdme_", "", 60}, {"shpat_", "", 30}, {"shpca_", "", 30}, {"shppa_", "", 30}, {"shpss_", "", 30},
		{"sntrys_", "+/=_", 60}, {"sntryu_", "", 60}, {"sm_pat_", "", 16}, {"sm_sat_", "", 16}, {"sm_aat_", "", 16}, {"tfp_", "-_=.", 40}, {"xkeysib-", "-", 60},
		{"dnkey-", "-_=", 40}, {"age1", "", 58}, {"AGE-SECRET-KEY-1", "", 58}, {"p8e-", "", 32}, {"AKCp", "", 60}, {"cmVmd", "", 55}, {"AQVN", "-_", 35}, {"YC", "_-", 38}, {"t1.", "-_.=", 60},
		{"hvs.", "-_", 20}, {"hvb.", "-_", 20}, {"hvr.", "-_", 20}, {"sq0atp-", "-_", 20}, {"sq0csp-", "-_", 20}, {"EAAA", "-_", 50}, {"EAAC", "", 50}, {"EAAM", "", 50}, {"SK", "", 32},
		{"AIza", "-_", 35}, {"ya29.", "-_", 20}, {"gsk_", "", 40}, {"pplx-", "", 40}, {"ops_eyJ", "+/=_-", 40}, {"tskey-", "-_", 20}, {"A3-", "-", 30}, {"lin_api_", "", 30}, {"dapi", "-", 32},
		{"tvly-", "-", 20}, {"r8_", "", 30}, {"nvapi-", "-_", 40}, {"phc_", "", 40}, {"phx_", "", 40}, {"CLOJARS_", "", 50}, {"dckr_pat_", "-_", 20}, {"ATATT3", "-_=", 100}, {"ATCTT3", "-_=", 100}, {"oy2", "", 43},
		{"key-", "", 32}, {"AKC", "", 10}, {"pat-na1-", "-", 30}, {"v1.0-", "-", 100}, {"figd_", "-_", 30}, {"HRKU-", "-", 30}, {"squ_", "", 40}, {"sqp_", "", 40}, {"sqa_", "", 40}, {"eyJrIjoi", "+/=", 40}, {"ZXlK", "+/=_-", 60},
		{"live_", "-_=", 40}, {"test_", "", 35}, {"BSKY-", "-", 10}, {"jfrt@", "", 10}, {"xai-", "", 60}, {"AAAA", "+/=-_%", 100}, {"SCW", "", 17}, {"EAACEdEose0cBA", "", 20}, {"MTA", "-_.", 50}, {"s.", "", 24},
		{"hooks.slack.com/", "/_-", 20}, {"vcp_", "", 24}, {"vci_", "", 24}, {"vca_", "", 24}, {"vcr_", "", 24}, {"vck_", "", 24},
	}
	for _, c := range "0123456789ABCDEF" {
		all = append(all, form{"AP" + string(c), "", 10})
	}
	by := &[1 << 14][]form{}
	for _, f := range all {
		k := pair(f.prefix[0], f.prefix[1])
		by[k] = append(by[k], f)
	}
	return by
})

// word looks at a word that starts at i: a vendor's token, a name that a secret is assigned to, or
// an account number with letters. It returns where to go on.
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

// vendor finds a token of a known make, or a JSON Web Token (RFC 7519), at i.
func (d *detector) vendor(i int) int {
	if i+8 > len(d.v) {
		return i
	}
	if end := d.jwt(i); end > i {
		return d.add(i, d.rest(end, end-i), "secrets")
	}
	return d.made(i)
}

// embedded finds a token of an unmistakable make whose prefix ends at i, in the midst of a word.
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

// pair is the place in makes of what begins with two bytes.
func pair(a, b byte) int { return int(a&0x7f)<<7 | int(b&0x7f) }

// made finds a token of a known make at i.
func (d *detector) made(i int) int {
	if i+2 > len(d.v) {
		return i
	}
	for _, f := range makes()[pair(d.v[i], d.v[i+1])] {
		if !bytes.HasPrefix(d.v[i:], []byte(f.prefix)) {
			continue
		}
		body := i + len(f.prefix)
		end := body
		for end < min(len(d.v), body+maxToken) && (isAlnum(d.v[end]) || strings.IndexByte(f.more, d.v[end]) >= 0) {
			end++
		}
		if end-body >= f.min && varied(d.v[body:end], f.prefix) {
			return d.add(i, d.rest(end, end-i), "secrets")
		}
	}
	return i
}

// rest returns the end of the run of visible characters that a long value goes on with.
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

// varied reports whether a token looks drawn by chance and not typed as an example.
func varied(body []byte, prefix string) bool {
	if strings.HasPrefix(prefix, "AP") || prefix == "AKC" { // JFrog gives the form and no more
		return !bytes.Equal(bytes.ToUpper(body), body) || bytes.ContainsAny(body, "0123456789")
	}
	if prefix == "hf_" {
		return true
	}
	if bytes.HasSuffix(body, []byte("EXAMPLE")) && len(body) < 20 || filler(body) {
		return false
	}
	return kinds(body) >= 4 && (len(prefix) > 2 || bytes.ContainsAny(body, "0123456789")) || len(prefix) >= 8
}

// kinds counts the different bytes in b.
func kinds(b []byte) (n int) {
	var seen [256]bool
	for _, c := range b {
		if !seen[c] {
			seen[c] = true
			n++
		}
	}
	return n
}

// filler reports whether a text is mostly x or asterisks.
func filler(b []byte) bool {
	n := bytes.Count(b, []byte("x")) + bytes.Count(b, []byte("X")) + bytes.Count(b, []byte("*"))
	return n*10 > len(b)*6
}

// strong are names whose value is a secret whatever it looks like; weak ones ask for a value that
// looks drawn by chance. Both are matched in the letters and digits of the name.
var (
	strong = split("password", "passwd", "passphrase", "passwort", "secret", "apikey", "accesskey", "privatekey", "credential", "pwd", "authtoken", "accesstoken", "refreshtoken", "bearertoken", "clientsecret", "signingkey", "encryptionkey", "masterkey", "connectionstring")
	weak   = split("token", "key", "auth", "cookie", "session", "cloudflare", "sig", "signature", "pass", "client", "login", "nonce", "otp", "pin")
	// about end a name that tells of a secret without holding it.
	about = split("count", "counts", "name", "type", "limit", "tokens", "id", "ids", "length", "len", "size", "expiry", "expires", "expiresin", "expiresat", "url", "uri", "path", "file", "ref", "policy", "hint", "rotation", "field", "used", "usage", "max", "min", "version", "algorithm", "format", "status", "required", "enabled", "changed", "at", "manager", "arn", "endpoint", "prefix", "provider", "source", "words", "budget", "chars", "characters", "signatures", "board", "helper")
)

// folders are names that a shell gives to folders.
var folders = split("pwd", "oldpwd", "passwd")

func split(words ...string) [][]byte {
	out := make([][]byte, len(words))
	for i, w := range words {
		out[i] = []byte(w)
	}
	return out
}

// secrecy says how surely a name holds a secret: 2 strong, 1 weak, 0 not at all. A strong name may
// stand anywhere in it, a weak one is a word of its own: an author is no auth, a monkey no key.
func secrecy(name []byte) int {
	if len(name) < 3 || len(name) > 128 {
		return 0
	}
	var buf [128]byte
	flat := buf[:0]
	for _, c := range name {
		if l := letters[c]; l != 0 {
			flat = append(flat, l)
		}
	}
	level := 0
	for _, k := range strong {
		if i := bytes.Index(flat, k); i >= 0 && !bytes.HasPrefix(flat[i:], []byte("secretar")) {
			level = 2
			break
		}
	}
	if level == 0 && (bytes.Contains(flat, []byte("token")) || hasWord(name, weak)) {
		level = 1
	}
	if level == 0 {
		return 0
	}
	for _, w := range about {
		if len(flat) > len(w) && bytes.HasSuffix(flat, w) && lastWord(name, w) {
			return 0
		}
	}
	return level
}

// hasWord reports whether one of the words stands in a name in snake, kebab or camel case.
func hasWord(name []byte, words [][]byte) bool {
	start := 0
	for i := 1; i <= len(name); i++ {
		end := i == len(name) || !isAlnum(name[i]) || name[i] >= 'A' && name[i] <= 'Z' && (name[i-1] >= 'a' || i+1 < len(name) && name[i+1] >= 'a')
		if !end {
			continue
		}
		for start < i && !isAlnum(name[start]) {
			start++
		}
		w := name[start:i]
		for _, k := range words {
			if len(w) == len(k) && bytes.EqualFold(w, k) {
				return true
			}
		}
		start = i
	}
	return false
}

// lastWord reports whether w is the last word of a name in snake, kebab or camel case.
func lastWord(name, w []byte) bool {
	n := len(name) - len(w)
	if n <= 0 || !bytes.EqualFold(name[n:], w) {
		return false
	}
	return !isAlpha(name[n-1]) || name[n] >= 'A' && name[n] <= 'Z' && name[n-1] >= 'a'
}

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
	start, ok := d.operator(end, dashes > 0)
	if !ok {
		return i
	}
	level := secrecy(d.v[i:end])
	if level == 0 || d.blanks(end) == start && dashes < 2 && level < 2 { // -Token value is code, --token value a flag
		return i
	}
	start, stop := d.value(start)
	val := d.v[start:stop]
	if bytes.HasPrefix(val, []byte("/")) && (hasWord(d.v[i:end], folders)) {
		return i // the working directory of a shell
	}
	if bytes.HasSuffix(d.v[:i], []byte("/etc/")) && string(d.v[i:end]) == "passwd" {
		return i // cat: /etc/passwd: Permission denied
	}
	if len(val) < 3 || placeholder(val) || (level == 1 || d.v[d.blanks(end+1)] == ',') && !random(val) {
		return i
	}
	if s := d.authScheme(start, stop); s > start {
		start = s
	}
	return d.add(start, d.rest(stop, stop-start), "secrets")
}

// types are words that stand between a variable and its value in source code.
var types = [][]byte{[]byte(": string"), []byte(":string"), []byte("string"), []byte("String"), []byte(": str")}

// operator skips what stands between a name and its value, and reports whether that assigns.
func (d *detector) operator(j int, flag bool) (int, bool) {
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
	sign := string(v[signs:j])
	switch {
	case sign == "" && !(flag && j > start), sign == "." || sign == "?" || sign == "+" || sign == "..", sign == "," && !quoted:
		return 0, false
	case sign == ">" && signs != start:
		return 0, false
	case sign == ">":
		for j < len(v) && v[j] <= ' ' {
			j++
		}
	}
	j = d.blanks(j)
	return j, j < len(v)
}

// blanks returns the first place from j that is no space or tab.
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

// placeholder reports whether a value is a reference, a mask or an example and no secret.
func placeholder(val []byte) bool {
	s := strings.ToLower(strings.TrimSpace(string(val)))
	switch s {
	case "", "null", "none", "nil", "true", "false", "undefined", "changeme", "example", "string", "required", "optional", "redacted", "masked", "hidden", "password", "secret", "token", "new", "await", "function", "this", "self", "str", "int", "bool":
		return true
	}
	if strings.HasPrefix(s, "$") || strings.HasPrefix(s, "<") || strings.HasPrefix(s, "{") || strings.HasPrefix(s, "[") || strings.HasPrefix(s, "%(") {
		return true
	}
	if strings.Contains(s, "environ") || strings.Contains(s, "process.env") || strings.Contains(s, "getenv") || strings.HasPrefix(s, "env:") || strings.HasPrefix(s, "secretref") {
		return true
	}
	if up := strings.ToUpper(string(val)); up == string(val) && !strings.ContainsAny(up, "0123456789") && secrecy(val) > 0 {
		return true // YOUR_API_KEY
	}
	return filler(val) || strings.Trim(s, ".-") == ""
}

// random reports whether a value of a weak name looks drawn by chance: at least twelve characters,
// with digits, and not a number, a date or a path.
func random(val []byte) bool {
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
	if kinds(val) < 6 || digits == 0 || bytes.Contains(val, []byte("://")) || bytes.HasPrefix(val, []byte("/")) {
		return false
	}
	return letters > 0 || len(val) >= 16
}

// scheme finds the credential after "Bearer " or "Basic ".
func (d *detector) scheme(i, end int) int {
	if d.v[i]|0x20 != 'b' {
		return i
	}
	w := string(d.v[i:end])
	if !strings.EqualFold(w, "bearer") && !strings.EqualFold(w, "basic") || end+9 > len(d.v) || d.v[end] != ' ' {
		return i
	}
	stop := end + 1
	for stop < len(d.v) && (isAlnum(d.v[stop]) || strings.IndexByte("-._~+/=!", d.v[stop]) >= 0) {
		stop++
	}
	if stop-end < 8 || !bytes.ContainsAny(d.v[end+1:stop], "0123456789+/=") || bytes.HasPrefix(d.v[end+1:], []byte("realm=")) {
		return i
	}
	return d.add(end+1, stop, "secrets")
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
	if colon := bytes.IndexByte(d.v[start:stop], ':'); colon < 0 || placeholder(d.v[start+colon+1:stop]) && placeholder(d.v[start:start+colon]) {
		return i + 1
	}
	return d.add(start, stop, "secrets")
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
	return d.add(i-5, end, "secrets")
}

// numbered finds tokens that begin with a number: a bot's of Telegram, an app's of Facebook.
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
		return d.add(i, end, "secrets")
	}
	return i
}
