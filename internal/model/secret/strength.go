package secret

import (
	"math"
	"strings"
)

// mostBits is where an estimate ends: more is not told apart.
const mostBits = 256

// Bits estimates the secret's entropy in bits, from the text alone. Each character adds the information of its
// frequency in the text. A character that repeats or continues the one before it adds one bit. A repeated part of the
// text adds as much as its position. The estimate uses no dictionary: a phrase of words has fewer bits than the
// estimate.
func (v Value) Bits() int {
	s := v.Reveal()
	var count [256]float64
	for i := range len(s) {
		count[s[i]]++
	}
	each := 0.0
	for _, n := range count {
		if n > 0 {
			each -= n / float64(len(s)) * math.Log2(n/float64(len(s)))
		}
	}
	sum := 0.0
	for i := 0; i < len(s) && sum < mostBits; i++ {
		if n := again(s, i); n >= 3 {
			sum += math.Log2(float64(len(s)))
			i += n - 1
			continue
		}
		if i > 0 && (s[i] == s[i-1] || s[i] == s[i-1]+1 || s[i] == s[i-1]-1) {
			sum++
			continue
		}
		sum += each
	}
	return int(min(sum, mostBits))
}

// again returns how many bytes from i on stand in s before i.
func again(s string, i int) (n int) {
	for i+n < len(s) && strings.Contains(s[:i], s[i:i+n+1]) {
		n++
	}
	return n
}
