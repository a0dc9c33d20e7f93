package strictjson

import (
	"bytes"
	"math/big"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// maxPlain is how many characters a number without an exponent has at most in the canonical form.
const maxPlain = 64

// numbers returns the JSON text b with each number in its canonical spelling. Two numbers are spelled the same if and
// only if they are equal as decimals. The spelling is that of RFC 8785, unless a double changes the number: then
// every digit stays.
func numbers(b []byte) []byte {
	out := make([]byte, 0, len(b))
	eachNumber(b, func(before, number []byte) bool {
		out = append(append(out, before...), spelling(number)...)
		return true
	})
	return out
}

// Exact reports whether a double holds every number of v: written as RFC 8785 does, it is the same decimal.
func (v Value) Exact() bool {
	exact := true
	eachNumber(v.raw, func(_, number []byte) bool {
		exact = len(number) == 0 || small(number) || same(number, asDouble(number))
		return exact
	})
	return exact
}

// eachNumber calls f with each number of a JSON text and the text before it, and at last with the rest and no number.
// It stops when f returns false.
func eachNumber(b []byte, f func(before, number []byte) bool) {
	from := 0
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case c == '-' || c >= '0' && c <= '9':
			end := i + 1
			for end < len(b) && bytes.IndexByte([]byte("0123456789.eE+-"), b[end]) >= 0 {
				end++
			}
			if !f(b[from:i], b[i:end]) {
				return
			}
			from, i = end, end-1
		}
	}
	f(b[from:], nil)
}

// small reports whether a number is at most 15 digits, and so canonical.
func small(number []byte) bool {
	for _, c := range number {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(number) <= 15
}

// spelling returns the canonical spelling of a number.
func spelling(number []byte) []byte {
	if len(number) == 0 || small(number) {
		return number
	}
	if double := asDouble(number); same(number, double) {
		return double
	}
	return newDecimal(number).spell()
}

// asDouble returns a number as RFC 8785 writes the double that is nearest to it, nil where that is infinite.
func asDouble(number []byte) []byte {
	f, err := strconv.ParseFloat(string(number), 64)
	if err != nil {
		return nil
	}
	if f == 0 {
		return []byte("0") // -0 is 0
	}
	return []byte(jsontext.Float(f).String())
}

// same reports whether two spellings are of the same decimal.
func same(a, b []byte) bool {
	if b == nil {
		return false
	}
	x, y := newDecimal(a), newDecimal(b)
	return x.negative == y.negative && bytes.Equal(x.digits, y.digits) && x.exponent.Cmp(y.exponent) == 0
}

// decimal is a number: digits, a whole number without zeros at either end, times ten to the exponent. Zero has no
// digits and the exponent 0.
type decimal struct {
	negative bool
	digits   []byte
	exponent *big.Int
}

func newDecimal(number []byte) decimal {
	d := decimal{exponent: new(big.Int)}
	mantissa, exponent := number, []byte(nil)
	if at := bytes.IndexAny(number, "eE"); at >= 0 {
		mantissa, exponent = number[:at], bytes.TrimPrefix(number[at+1:], []byte("+"))
		d.exponent.SetString(string(exponent), 10)
	}
	mantissa, d.negative = bytes.CutPrefix(mantissa, []byte("-"))
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	digits := append(bytes.Clone(whole), fraction...)
	short := bytes.TrimRight(digits, "0")
	d.exponent.Add(d.exponent, big.NewInt(int64(len(digits)-len(short)-len(fraction))))
	if d.digits = bytes.TrimLeft(short, "0"); len(d.digits) == 0 {
		return decimal{exponent: new(big.Int)}
	}
	return d
}

// spell writes a decimal that is not 0: plain where that is short, else with an exponent.
func (d decimal) spell() []byte {
	var out []byte
	if d.negative {
		out = append(out, '-')
	}
	n := len(d.digits)
	if d.exponent.IsInt64() {
		switch e := d.exponent.Int64(); {
		case e >= 0 && e <= maxPlain && n+int(e) <= maxPlain:
			return append(append(out, d.digits...), bytes.Repeat([]byte("0"), int(e))...)
		case e < 0 && -e < int64(n) && n < maxPlain:
			return append(append(append(out, d.digits[:n+int(e)]...), '.'), d.digits[n+int(e):]...)
		case e < 0 && -e < maxPlain && n < maxPlain:
			return append(append(append(out, "0."...), bytes.Repeat([]byte("0"), int(-e)-n)...), d.digits...)
		}
	}
	out = append(out, d.digits[0])
	if n > 1 {
		out = append(append(out, '.'), d.digits[1:]...)
	}
	power := new(big.Int).Add(d.exponent, big.NewInt(int64(n-1)))
	out = append(out, 'e')
	if power.Sign() >= 0 {
		out = append(out, '+')
	}
	return power.Append(out, 10)
}
