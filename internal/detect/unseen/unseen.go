// Package unseen knows what a text holds that a person does not see, or sees as something else: hidden characters,
// characters that look like those of ASCII, and escape sequences of terminals.
package unseen

// Hidden reports whether r is invisible to a reader but not to a program: zero-width, direction (UAX 9), tag, filler
// and annotation characters. Joiners and
// variation selectors 1 to 16 are not among them: an emoji or a script can need them.
func Hidden(r rune) bool {
	switch {
	case r < 0xAD:
		return false
	case r == 0xAD, r == 0x34F, r == 0x61C, r == 0x115F, r == 0x1160, r == 0x17B4, r == 0x17B5, r >= 0x180B && r <= 0x180F,
		r == 0x200B, r == 0x200E, r == 0x200F, r >= 0x202A && r <= 0x202E, r >= 0x2060 && r <= 0x206F,
		r == 0x3164, r == 0xFEFF, r == 0xFFA0, r >= 0xFFF0 && r <= 0xFFFB, r >= 0x1BCA0 && r <= 0x1BCA3,
		r >= 0x1D173 && r <= 0x1D17A, r >= 0xE0000 && r <= 0xE0FFF:
		return true
	}
	return false
}

// InFile reports whether a file that people write has no use for r: Hidden, C1 controls, joiners, line separators.
func InFile(r rune) bool {
	return Hidden(r) || r >= 0x80 && r < 0xa0 || r == 0x200C || r == 0x200D || r == 0x2028 || r == 0x2029
}

// Plain returns the letter, digit or sign of ASCII that r shows (Unicode's compatibility mappings, NFKC), or r itself.
func Plain(r rune) rune {
	if r < 0xA0 {
		return r
	}
	for _, t := range looks {
		if r >= t.from && r < t.from+rune(t.count*len(t.as)) {
			return rune(t.as[int(r-t.from)%len(t.as)])
		}
	}
	return r
}

// looks are runs of characters that look like those of ASCII: count alphabets one after another. A hole in an alphabet
// has its letter among the letterlike symbols.
var looks = []struct {
	from  rune
	count int
	as    string
}{
	{0xA0, 1, " "}, {0xAA, 1, "a"}, {0xB2, 1, "23"}, {0xB9, 1, "1o"}, {0x660, 1, digits}, {0x6F0, 1, digits},
	{0x2000, 11, " "}, {0x2010, 6, "-"}, {0x202F, 1, " "}, {0x2070, 1, "0i"}, {0x2074, 1, "456789+"}, {0x207B, 1, "-=()n"},
	{0x2080, 1, digits + "+-=()"}, {0x2090, 1, "aeox"}, {0x2095, 1, "hklmnpst"}, {0x2102, 1, "C"}, {0x210A, 1, "gHHHh"},
	{0x2110, 1, "IILl"}, {0x2115, 1, "N"}, {0x2119, 1, "PQRRR"}, {0x2124, 1, "Z"}, {0x2128, 1, "Z"}, {0x212A, 1, "K"},
	{0x212C, 1, "BC"}, {0x212F, 1, "eEF"}, {0x2133, 1, "Mo"}, {0x2139, 1, "i"}, {0x2145, 1, "Ddeij"}, {0x2212, 1, "-"},
	{0x2460, 1, "123456789"}, {0x249C, 1, small}, {0x24B6, 1, capital + small + "0"}, {0x3000, 1, " "},
	{0xFF01, 1, fullWidth}, {0x1D400, 13, capital + small}, {0x1D7CE, 5, digits}, {0x1F110, 1, capital},
	{0x1F130, 1, capital}, {0x1F150, 1, capital}, {0x1F170, 1, capital}, {0x1FBF0, 1, digits}, {0xE0020, 1, tags},
}

const (
	digits    = "0123456789"
	capital   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	small     = "abcdefghijklmnopqrstuvwxyz"
	fullWidth = "!\"#$%&'()*+,-./" + digits + ":;<=>?@" + capital + "[\\]^_`" + small + "{|}~"
	tags      = " " + fullWidth // tags spell ASCII unseen
)

// MaxEscape is the longest string that an escape sequence may carry to be taken as one.
const MaxEscape = 4096

// Escape returns the length of the terminal escape sequence (ECMA-48) at the start of t, or 0. It covers CSI up to
// its final byte, OSC, DCS, APC, PM and SOS up to their terminator, and two-byte escapes. An incomplete sequence
// counts as its introducer.
func Escape(t []byte) int {
	intro, kind := 0, byte(0)
	switch {
	case len(t) > 1 && t[0] == 0x1b:
		intro, kind = 2, t[1]
	case len(t) == 1 && t[0] == 0x1b:
		return 1
	case len(t) > 1 && t[0] == 0xc2 && t[1] >= 0x80 && t[1] < 0xa0:
		intro, kind = 2, t[1]-0x40
	default:
		return 0
	}
	switch kind {
	case '[':
		return intro + csiLen(t[intro:])
	case ']', 'P', '_', '^', 'X':
		return intro + stringLen(t[intro:])
	}
	switch {
	case t[0] != 0x1b, kind >= 0x30 && kind < 0x7f:
		return intro
	case kind >= 0x20 && kind < 0x30 && len(t) > 2 && t[2] >= 0x20 && t[2] < 0x7f:
		return 3 // a character set
	}
	return 1
}

// csiLen returns the length of parameters, intermediates and the final byte, 0 without one.
func csiLen(t []byte) int {
	for i, c := range t {
		switch {
		case c >= 0x40 && c < 0x7f:
			return i + 1
		case c < 0x20 || c >= 0x40:
			return 0
		}
	}
	return 0
}

// stringLen returns the length of a control string with its terminator, 0 without one.
func stringLen(t []byte) int {
	for i, c := range t {
		switch {
		case c == 0x07:
			return i + 1
		case c == 0x1b && i+1 < len(t) && t[i+1] == '\\', c == 0xc2 && i+1 < len(t) && t[i+1] == 0x9c:
			return i + 2
		case c == 0x1b:
			return 0
		}
	}
	return 0
}
