package redact

import (
	"bytes"
	"slices"
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
		return same && (sep == "-" || sep == "." || sep == " ") || d.v[gs[0].end] == ')'
	case slices.Equal(size, []int{1, 3, 3, 4}):
		return n[0] == '1'
	case n[0] == '0' && len(n) >= 9 && len(gs) > 1:
		return same && (sep == "-" || sep == " " || sep == "/") || bytes.IndexByte([]byte(" -/"), d.v[gs[0].end]) >= 0 && !same
	}
	return false
}

// account finds an IBAN (ISO 13616) or an address of Bitcoin that starts at i.
func (d *detector) account(i int) int {
	if end := d.ibanAt(i); end > i {
		return d.add(i, end, iban)
	}
	if end := d.walletAt(i); end > i {
		return d.add(i, end, wallet)
	}
	return i
}

// ibanAt returns the end of an IBAN with a sound check, with or without single separators.
func (d *detector) ibanAt(i int) int {
	v := d.v
	if i+15 > len(v) || !isAlpha(v[i]) || !isAlpha(v[i+1]) || !isDigit(v[i+2]) || !isDigit(v[i+3]) {
		return i
	}
	var body []byte
	best := i
	for j := i; j < len(v) && len(body) < 34; j++ {
		if !isAlnum(v[j]) {
			if bytes.IndexByte([]byte(" -.\t\n+"), v[j]) < 0 {
				break
			}
			continue
		}
		body = append(body, v[j])
		if len(body) >= 15 && (j+1 == len(v) || !isAlnum(v[j+1])) && mod97(body) == 1 {
			best = j + 1
		}
	}
	return best
}

// mod97 is the check of ISO 7064: the first four characters moved to the end, letters as 10 to 35.
func mod97(b []byte) int {
	m := 0
	for k := range b {
		c := b[(k+4)%len(b)]
		if isDigit(c) {
			m = (m*10 + int(c-'0')) % 97
		} else {
			m = (m*100 + int(c|0x20-'a') + 10) % 97
		}
	}
	return m
}

// walletAt returns the end of a Bitcoin address: bech32 after "bc1".
func (d *detector) walletAt(i int) int {
	end := d.skipAlnum(i)
	if n := end - i; bytes.HasPrefix(d.v[i:], []byte("bc1")) && n >= 42 && n <= 62 {
		return end
	}
	return i
}
