package surrogate

import (
	"slices"
	"strings"
	"testing"

	"waldo/internal/detect"
	"waldo/internal/detect/checkdigit"
)

// Each form keeps the length and the grouping of its value where that has one.
func TestForms(t *testing.T) {
	for _, row := range []struct {
		class, value string
		n            int
		want         string // "": no form
	}{
		{detect.Email, "jane.doe@mail.example.org", 1, "person-1@redacted.example"},
		{detect.Email, "amFuZUB4LmV4YW1wbGU=", 1, ""}, // base64
		{detect.Phone, "(415) 555-0132", 1, "(555) 555-0100"},
		{detect.Phone, "415.555.0132", 101, "290.555.0100"},
		{detect.Phone, "4155550132", 8100, "999.555.0199"},
		{detect.Phone, "4155550132", 8101, ""},
		{detect.Phone, "+1 415 555 0132", 2, "+1 555 555 0101"},
		{detect.Phone, "+49 30 1234567", 12, "+99 90 0000012"},
		{detect.Phone, "0049 30 1234567", 12, "0099 90 0000012"},
		{detect.Phone, "+1234567", 10000, ""},
		{detect.Phone, "01 23 45 67 89", 1, ""}, // no range in France is fictional everywhere
		{detect.Phone, "345-899-3560x4587", 1, ""},
		{detect.SSN, "078-05-1120", 42, "000-00-0042"},
		{detect.SSN, "078051120", 1, "000000001"},
		{detect.Card, "4111 1111 1111 1111", 1, "9999 0000 0000 0010"},
		{detect.Card, "378282246310005", 7, "999900000000070"},
		{detect.IBAN, "GB82 WEST 1234 5698 7654 32", 5, "ZZ00 XXXX 0000 0000 0000 05"},
		{detect.Wallet, "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2", 3, "1" + strings.Repeat("o", 32) + "3"},
		{detect.Wallet, "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq", 3, "bc1" + strings.Repeat("o", 38) + "3"},
		{detect.IP, "81.2.69.142", 256, "240.0.1.0"},
		{detect.IPv6, "2a02:8071:b1::17", 65537, "2001:db8::1:1"},
		{detect.Name, "Jane Doe", 1, ""},
		{detect.Secrets, "hunter2", 1, ""},
		{detect.Email, "jane@x.example", 0, ""},
	} {
		got, ok := Make(row.class, row.value, row.n)
		if row.n == 8100 {
			row.want = strings.ReplaceAll(row.want, ".", "")
		}
		if ok != (row.want != "") || ok && got != row.want {
			t.Errorf("%s %q %d: %q %v, want %q", row.class, row.value, row.n, got, ok, row.want)
		}
		if row.class == detect.Card && checkdigit.Luhn([]byte(strings.ReplaceAll(got, " ", ""))) {
			t.Errorf("%q passes for a card", got)
		}
		if row.class == detect.IBAN && checkdigit.IBAN([]byte(strings.ReplaceAll(got, " ", ""))) {
			t.Errorf("%q passes for an account", got)
		}
	}
}

func TestNoCardIsMade(t *testing.T) {
	for n := range 100 {
		if s, ok := Make(detect.Card, "4111111111111111", n+1); !ok || checkdigit.Luhn([]byte(s)) {
			t.Errorf("%d: %q %v passes for a card", n+1, s, ok)
		}
	}
}

// A part of another word or number does not count as a surrogate.
func TestIn(t *testing.T) {
	for _, row := range []struct {
		text string
		want []string
	}{
		{"to person-1@redacted.example.", []string{"person-1@redacted.example"}},
		{"<person-1@redacted.example>,person-22@redacted.example", []string{"person-1@redacted.example", "person-22@redacted.example"}},
		{"aperson-1@redacted.example person-1@redacted.example.com x-person-1@redacted.example", nil},
		{"person-01@redacted.example person-1@redacted.examples", nil},
		{"555-555-0100 15 555-0100", []string{"555-555-0100"}},
		{"+99 90 0000012 5", []string{"+99 90 0000012 5"}},
		{"1240.0.0.1 240.0.0.1.5 240.0.0.12", []string{"240.0.0.12"}},
		{"2001:db8::0:1 2001:db8::0:1:2", []string{"2001:db8::0:1"}},
		{"078-05-1120 4111 1111 1111 1111 +49 30 1234567", nil},
	} {
		var got []string
		for _, f := range In(row.text) {
			got = append(got, row.text[f.Start:f.End])
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%q: %q, want %q", row.text, got, row.want)
		}
	}
}

// FuzzMake checks that a surrogate is found again as its class, and that the next number gives another one.
func FuzzMake(f *testing.F) {
	for i, v := range []string{"a@b.example", "+49 30 1234567", "078-05-1120", "4111 1111 1111 1111", "81.2.69.142",
		"GB82 WEST 1234 5698 7654 32", "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2", "2a02:8071:b1::17", "(415) 555-0132"} {
		f.Add(v, i+1)
	}
	f.Fuzz(func(t *testing.T, value string, n int) {
		for _, c := range detect.Classes() {
			s, ok := Make(c, value, n)
			if !ok {
				continue
			}
			if found := In(s); len(found) != 1 || found[0] != (detect.Find{End: len(s), Class: c}) {
				t.Fatalf("%s %q: %q is found as %v", c, value, s, found)
			}
			if next, ok := Make(c, value, n+1); ok && next == s {
				t.Fatalf("%s %q: %q is given twice", c, value, s)
			}
		}
	})
}
