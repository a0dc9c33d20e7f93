package strictjson_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"waldo/internal/protocol/strictjson"
)

func canonical(t testing.TB, s string) string {
	t.Helper()
	v, err := strictjson.Parse([]byte(s))
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return string(v.Canonical())
}

func TestNumbersKeepTheirDigits(t *testing.T) {
	for _, row := range []struct {
		in, want string
		exact    bool
	}{
		{"1.0", "1", true}, {"1e2", "100", true}, {"-0.0", "0", true}, {"0.10", "0.1", true},
		{"0e9999999999999999999", "0", true},
		{"1e21", "1e+21", true}, {"1000000000000000000000", "1e+21", true}, {"1e-7", "1e-7", true},
		{"0.30000000000000004", "0.30000000000000004", true},
		{"9007199254740992", "9007199254740992", true},
		{"9007199254740993", "9007199254740993", false},
		{"-9007199254740993.0", "-9007199254740993", false},
		{"12345678901234567168.0", "12345678901234567168", false},
		{"12345678901234567999.9", "12345678901234567999.9", false},
		{"0.1000000000000000000001", "0.1000000000000000000001", false},
		{"0.001000000000000000000001", "0.001000000000000000000001", false},
		{"1e-400", "1e-400", false}, {"10e-401", "1e-400", false}, {"-1.50e400", "-1.5e+400", false},
		{"1e99999999999999999999", "1e+99999999999999999999", false},
	} {
		if got := canonical(t, row.in); got != row.want {
			t.Errorf("%s is %s, wanted %s", row.in, got, row.want)
		}
		v, err := strictjson.Parse([]byte(`{"a":["1e400",` + row.in + `]}`))
		if err != nil || v.Exact() != row.exact {
			t.Errorf("%s: exact %v (%v), wanted %v", row.in, v.Exact(), err, row.exact)
		}
	}
}

// equal compares two numbers as decimals, with math/big.
func equal(t testing.TB, a, b string) bool {
	x, ok := new(big.Rat).SetString(a)
	y, ok2 := new(big.Rat).SetString(b)
	if !ok || !ok2 {
		t.Fatalf("math/big does not read %q or %q", a, b)
	}
	return x.Cmp(y) == 0
}

// spelled returns a number, and another that is often near it or the same.
func spelled(r *rand.Rand) (string, string) {
	digits := strconv.Itoa(1 + r.IntN(9))
	for range r.IntN(24) {
		digits += strconv.Itoa(r.IntN(10))
	}
	point, e := r.IntN(len(digits)+1), r.IntN(700)-350
	if r.IntN(2) == 0 {
		e = r.IntN(20) - 10
	}
	a := fmt.Sprintf("0.%se%d", digits, e)
	b := fmt.Sprintf("%s.%s0e%d", "0"[:1-min(1, point)]+digits[:point], digits[point:], e-point)
	switch r.IntN(4) {
	case 0:
		b = strings.Replace(b, "0e", "1e", 1)
	case 1:
		f, err := strconv.ParseFloat(a, 64)
		if err == nil {
			b = strconv.FormatFloat(f, 'g', -1, 64)
		}
	}
	return a, b
}

// TestNumbersAgainstDecimals: two numbers have one canonical form exactly when they are equal, and it is equal to them.
func TestNumbersAgainstDecimals(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 28))
	alike, apart := 0, 0
	for range 20_000 {
		a, b := spelled(r)
		ca, cb := canonical(t, a), canonical(t, b)
		if !equal(t, a, ca) {
			t.Fatalf("%s became %s", a, ca)
		}
		if same := equal(t, a, b); same != (ca == cb) {
			t.Fatalf("%s is %s, %s is %s", a, ca, b, cb)
		} else if same {
			alike++
		} else {
			apart++
		}
	}
	if alike < 2_000 || apart < 2_000 {
		t.Errorf("control: %d pairs alike, %d apart", alike, apart)
	}
}

// FuzzNumber: a number and its canonical form are one decimal, and the form stays.
func FuzzNumber(f *testing.F) {
	for _, s := range []string{"0", "-0.0", "1e21", "9007199254740993", "12345678901234567999.9", "1e-400", "10E+5"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var n json.Number
		v, err := strictjson.Parse(b)
		if err != nil || v.Kind() != '0' || json.Unmarshal(v.Raw(), &n) != nil {
			return
		}
		c := v.Canonical()
		if i := bytes.IndexAny(b, "eE"); i >= 0 && len(b)-i > 5 {
			return // beyond what math/big does in time
		}
		if !equal(t, string(v.Raw()), string(c)) {
			t.Fatalf("%s became %s", b, c)
		}
		if again := canonical(t, string(c)); again != string(c) {
			t.Fatalf("%s became %s, then %s", b, c, again)
		}
	})
}
