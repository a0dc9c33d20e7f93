package detect

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"waldo/internal/detect/checkdigit"
)

// national accepts telephone numbers without a country code: an area code in brackets, the North
// American 3-3-4, and numbers in groups that begin with a zero.
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
	case string(n[:2]) == "00" && n[2] != '0' && len(n) >= 11:
		return len(gs) > 1
	case n[0] == '0' && n[1] != '0' && len(n) >= 9 && len(n) <= 12 && len(gs) > 1:
		return strings.IndexByte(" -/", d.v[gs[0].end]) >= 0
	}
	return false
}

// spoken reports whether the words just before or after a number say that it is for the telephone.
func (d *detector) spoken(start, end int) bool {
	before := bytes.ToLower(d.v[max(0, start-28):start])
	before = before[bytes.LastIndexByte(before, '\n')+1:]
	for _, w := range []string{"phone", "mobile", "tel", "cell", "fax", "desk", "call", "dial", "sms", "whatsapp", "messages to", "answering at", "reach", "registered"} {
		if bytes.Contains(before, []byte(w)) {
			return true
		}
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
	if err != nil || end-i < 7 || !bytes.ContainsAny(d.v[i:end], "0123456789") || !reachable(a) || end < len(d.v) && isAlnum(d.v[end]) {
		return i
	}
	return end
}

// ibanAt returns the end of an IBAN with a sound check, with or without single separators.
func (d *detector) ibanAt(i int) int {
	v := d.v
	if i+15 > len(v) || !isAlpha(v[i]) || !isAlpha(v[i+1]) || !isDigit(v[i+2]) || !isDigit(v[i+3]) {
		return i
	}
	body := d.digit[:0]
	best := i
	for j := i; j < min(len(v), i+80) && len(body) < 34; j++ {
		if !isAlnum(v[j]) {
			if strings.IndexByte(" -.\t\n+", v[j]) < 0 {
				break
			}
			continue
		}
		body = append(body, v[j])
		if len(body) >= 15 && (j+1 == len(v) || !isAlnum(v[j+1])) && checkdigit.IBAN(body) {
			best = j + 1
		}
	}
	return best
}

// walletAt returns the end of a Bitcoin address: bech32 after "bc1", or base58 with a sound check.
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
