package approval

import "unicode/utf8"

// punycode returns a label of a host name as the network sees it, "xn--…" where it holds other
// than ASCII (RFC 3492, §6.3). It maps nothing: this is for showing, never for connecting.
func punycode(label string) string {
	var out []byte
	rest := 0
	for _, r := range label {
		if r < utf8.RuneSelf {
			out = append(out, byte(r))
		} else {
			rest++
		}
	}
	if rest == 0 {
		return label
	}
	basic := len(out)
	if basic > 0 {
		out = append(out, '-')
	}
	n, delta, bias, done := rune(128), 0, 72, basic
	for rest > 0 {
		next := rune(utf8.MaxRune)
		for _, r := range label {
			if r >= n && r < next {
				next = r
			}
		}
		delta += int(next-n) * (done + 1)
		n = next
		for _, r := range label {
			if r < n {
				delta++
			}
			if r != n {
				continue
			}
			out = appendDigits(out, delta, bias)
			bias = adapt(delta, done+1, done == basic)
			delta, done, rest = 0, done+1, rest-1
		}
		delta, n = delta+1, n+1
	}
	return "xn--" + string(out)
}

// appendDigits writes a number in the variable base of RFC 3492, §3.3.
func appendDigits(out []byte, q, bias int) []byte {
	const digits = "abcdefghijklmnopqrstuvwxyz0123456789"
	for k := 36; ; k += 36 {
		t := min(max(k-bias, 1), 26)
		if q < t {
			return append(out, digits[q])
		}
		out = append(out, digits[t+(q-t)%(36-t)])
		q = (q - t) / (36 - t)
	}
}

// adapt is the bias adaptation of RFC 3492, §6.1.
func adapt(delta, points int, first bool) int {
	if first {
		delta /= 700
	} else {
		delta /= 2
	}
	delta += delta / points
	k := 0
	for ; delta > 455; k += 36 {
		delta /= 35
	}
	return k + 36*delta/(delta+38)
}
