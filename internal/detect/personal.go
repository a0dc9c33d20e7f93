package detect

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"waldo/internal/detect/checkdigit"
)

// national accepts telephone numbers without a country code: an area code in brackets, the North American 3-3-4, the
// Russian and Turkish 3-3-2-2, and numbers in groups that begin with a zero.
func (d *detector) national(i int, n []byte, gs []group) bool {
	var size []int
	for _, g := range gs {
		size = append(size, g.end-g.start)
	}
	sep, same := d.separators(gs)
	switch {
	case d.v[i] == '(':
		return gs[0].end < len(d.v) && d.v[gs[0].end] == ')' && len(gs) > 1
	case slices.Equal(size, []int{3, 3, 4}):
		return same && (sep == "-" || sep == "." || sep == " ")
	case slices.Equal(size, []int{1, 3, 3, 4}):
		return n[0] == '1'
	case slices.Equal(size, []int{3, 3, 2, 2}):
		return n[0] >= '2' && d.v[gs[1].end] == '-' && d.v[gs[2].end] == '-' && strings.IndexByte(" -", d.v[gs[0].end]) >= 0
	case slices.Equal(size, []int{1, 3, 3, 2, 2}):
		return strings.IndexByte("078", n[0]) >= 0 && n[1] >= '2' && strings.IndexByte(" -(", d.v[gs[0].end]) >= 0
	case string(n[:2]) == "00" && n[2] != '0' && len(n) >= 11:
		return len(gs) > 1
	case n[0] == '0' && n[1] != '0' && len(n) >= 9 && len(n) <= 12 && len(gs) > 1:
		return strings.IndexByte(" -/", d.v[gs[0].end]) >= 0 &&
			size[0] > 1 && size[len(size)-1] > 1 && len(sep) < 2 &&
			!(len(size) == 2 && size[1] == 4 && sep == "-") // a postal code of the United States
	}
	return false
}

// telephone lists words that mean a telephone and nothing else. A letter outside of ASCII ends a word, so that "tel" is
// found in teléfono.
var telephone = []string{
	"phone", "phones", "telephone", "cellphone", "mobile", "tel", "fax", "sms", "whatsapp", // English
	"telefon", "telefonnummer", "mobil", "mobiltelefon", "mobilnummer", "handynummer", "rufnummer", // German, Nordic, Turkish
	"telefono", "telefone", "celular", "cellulare", "movil", "telefoon", "telefoonnummer", // Romance, Dutch
}

// spoken reports whether the words next to a number mention a telephone.
func (d *detector) spoken(start, end int) bool {
	if bytes.Count(d.v[start:end], []byte(".")) == 1 && !bytes.ContainsAny(d.v[start:end], " -/(") {
		return false // a decimal number
	}
	if d.says(start, telephone...) || d.says(start, "mob", "cell", "desk", "call", "dial", "number", "messages",
		"answering", "reach", "registered", "text") {
		return true
	}
	if d.v[start] == '0' && end-start >= 9 && d.says(start, "contact", "contacts") {
		return true // an id has no zero in front
	}
	after := bytes.ToLower(d.v[end:min(len(d.v), end+8)])
	for _, w := range []string{" office", " fax", " mobile", "-office", "-fax", "-mobile"} {
		if bytes.HasPrefix(after, []byte(w)) {
			return true
		}
	}
	return false
}

// account finds an IBAN (ISO 13616) or an address of Bitcoin that starts at i.
func (d *detector) account(i int) int {
	if end := d.ibanAt(i); end > i {
		return d.add(i, end, IBAN)
	}
	if end := d.walletAt(i); end > i {
		return d.add(i, end, Wallet)
	}
	if end := d.ip6(i); end > i {
		return d.add(i, end, IPv6)
	}
	return i
}

// ip6 returns the end of an IPv6 address (RFC 4291) that can be reached from elsewhere.
func (d *detector) ip6(i int) int {
	colon := i
	for colon < len(d.v) && colon-i < 5 && hexval(d.v[colon]) >= 0 {
		colon++
	}
	if colon == i || colon >= len(d.v) || d.v[colon] != ':' || i > 0 && d.v[i-1] == ':' {
		return i
	}
	end := colon
	for end < len(d.v) && end-i < 46 && (hexval(d.v[end]) >= 0 || d.v[end] == ':' || d.v[end] == '.') {
		end++
	}
	for end > i && (d.v[end-1] == '.' || d.v[end-1] == ':' && d.v[end-2] != ':') {
		end--
	}
	a, err := netip.ParseAddr(string(d.v[i:end]))
	if err != nil || end-i < 7 || !bytes.ContainsAny(d.v[i:end], "0123456789") || !reachable(a) ||
		end < len(d.v) && isAlnum(d.v[end]) {
		return i
	}
	return end
}

// ibanAt returns the end of an IBAN with a valid checksum, with or without single separators.
func (d *detector) ibanAt(i int) int {
	v := d.v
	if i+15 > len(v) || !isAlpha(v[i]) || !isAlpha(v[i+1]) || !isDigit(v[i+2]) || !isDigit(v[i+3]) {
		return i
	}
	size := accounts[string([]byte{v[i] &^ 0x20, v[i+1] &^ 0x20})]
	if size == 0 {
		return i
	}
	body := d.digit[:0]
	for j := i; j < min(len(v), i+80) && len(body) < size; j++ {
		if !isAlnum(v[j]) {
			if strings.IndexByte(" -.\t\n+", v[j]) < 0 {
				break
			}
			continue
		}
		body = append(body, v[j])
		if len(body) == size && (j+1 == len(v) || !isAlnum(v[j+1])) && checkdigit.IBAN(body) {
			return j + 1
		}
	}
	return i
}

// accounts are the lengths of IBANs by country (the registry of ISO 13616).
var accounts = map[string]int{
	"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29,
	"BY": 28, "CH": 21, "CR": 22,
	"CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FK": 18,
	"FO": 18, "FR": 27, "GB": 22,
	"GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HN": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23,
	"IS": 26, "IT": 27, "JO": 30,
	"KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24,
	"ME": 22, "MK": 19, "MN": 20,
	"MR": 27, "MT": 31, "MU": 30, "NI": 28, "NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29, "PT": 25,
	"QA": 29, "RO": 24, "RS": 22,
	"RU": 33, "SA": 24, "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "SO": 23, "ST": 25, "SV": 28,
	"TL": 23, "TN": 24, "TR": 26,
	"UA": 29, "VA": 22, "VG": 24, "XK": 20, "YE": 30,
	// in use and not in the registry
	"AO": 25, "BF": 28, "BJ": 28, "CF": 27, "CG": 27, "CI": 28, "CM": 27, "CV": 25, "DZ": 26, "GA": 27, "GQ": 27,
	"GW": 25, "IR": 26, "KM": 27,
	"MA": 28, "MG": 27, "ML": 28, "MZ": 25, "NE": 28, "SN": 28, "TD": 27, "TG": 28,
}

// walletAt returns the end of a Bitcoin address: bech32 after "bc1", or base58 with a valid checksum.
func (d *detector) walletAt(i int) int {
	c := d.v[i]
	if c != 'b' && c != '1' && c != '3' {
		return i
	}
	end := d.skipAlnum(i)
	n := end - i
	if bytes.HasPrefix(d.v[i:], []byte("bc1")) && n >= 42 && n <= 62 {
		return end
	}
	if c != 'b' && n >= 26 && n <= 35 && checkdigit.Base58(d.v[i:end]) {
		return end
	}
	return i
}

func hexval(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
