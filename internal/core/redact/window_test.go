package redact

import (
	"encoding/base64"
	"encoding/hex"
	"html"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

const alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

func random(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

// partOf reports whether the text holds six consecutive characters of the spelling.
func partOf(text, spelling string) bool {
	for i := 0; i+6 <= len(spelling); i++ {
		if strings.Contains(text, spelling[i:i+6]) {
			return true
		}
	}
	return false
}

// forms returns spellings of a secret in the answers of hosts.
func forms(s string) []string {
	out := []string{s, hex.EncodeToString([]byte(s)), strings.ToUpper(s), url.QueryEscape(s), html.EscapeString(s)}
	for o := range 3 {
		e := base64.RawStdEncoding.EncodeToString([]byte("\x00\x00"[:o] + s))
		out = append(out, e[[]int{0, 2, 3}[o]:(o+len(s))*8/6])
	}
	q := quoteJSON(s)
	return append(out, q[1:len(q)-1])
}

// A text cut anywhere in a secret, in any spelling, holds no part of it. The plain cut does.
func TestWindowHidesPartsOfSecrets(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	leaks := 0
	for range 60 {
		s := random(r, 24+r.IntN(40))
		g := &Registry{}
		if err := g.Add("s", secret.NewValue(s)); err != nil {
			t.Fatal(err)
		}
		for _, f := range forms(s) {
			at := 2000 + r.IntN(500)
			text := strings.Repeat(".", at) + f + strings.Repeat(".", r.IntN(3000))
			cut := at + 6 + r.IntN(len(f)-6)
			if partOf(g.Text(text[:cut]), f) {
				leaks++
			}
			head := min(len(text), cut+64<<10)
			for _, shown := range []string{
				text[:g.Head(text[:head], cut, head < len(text))],    // cut at its end, with what follows
				text[:g.Head(text[:cut], cut, true)],                 // without
				g.Window(text, at+r.IntN(6), len(text), true, false), // cut at its start, with what is before
				g.Window(text[cut-6:], 0, len(text), true, false),    // without
			} {
				if shown = g.Text(shown); partOf(shown, f) {
					t.Fatalf("secret %q spelled %q, cut at %d of it: %q", s, f, cut-at, shown)
				}
			}
			var b strings.Builder
			stream := New(contract.Redaction{}, g, nil).TerminalStream(&b)
			_, _ = stream.Write([]byte(text[:cut]))
			stream.Beyond([]byte(text[cut:]))
			if err := stream.Close(); err != nil || partOf(b.String(), f) {
				t.Fatalf("secret %q spelled %q, cut at %d of it: stream wrote %q, %v", s, f, cut-at, b.String(), err)
			}
		}
	}
	if leaks < 100 {
		t.Errorf("control: %d plain cuts show a part", leaks)
	}
}

// The text that is left out at a cut does not depend on how near the text comes to a secret.
func TestWindowIsNoOracle(t *testing.T) {
	const s = "zQ7pLm3XvR9tKc5WbN2hJd8FyG4sAe6U"
	g := &Registry{}
	if err := g.Add("s", secret.NewValue(s)); err != nil {
		t.Fatal(err)
	}
	for n := range len(s) {
		near := strings.Repeat(".", 4000) + s[:n]
		far := near[:4000] + strings.Repeat("x", n)
		if a, b := g.Head(near, len(near), true), g.Head(far, len(far), true); a != b || a < 3000 {
			t.Errorf("%d characters: %d and %d bytes shown", n, a, b)
		}
		if a := g.Head(near+" and on", len(near), false); a != len(near) {
			t.Errorf("%d characters with what follows: %d of %d bytes shown", n, a, len(near))
		}
	}
	if n := (&Registry{}).Head("text", 4, true); n != 4 {
		t.Errorf("without a secret %d of 4 bytes are shown", n)
	}
}

// TestWindowOfPersonalData: no window has a part of a number or address: half of one is not known for one later.
func TestWindowOfPersonalData(t *testing.T) {
	for _, one := range []string{"4111111111111111", "4111 1111 1111 1111", "ada.lovelace@example.org", "GB82WEST12345698765432"} {
		text := "before " + one + " behind"
		at := strings.Index(text, one)
		for edge := range len(text) + 1 {
			for _, got := range []string{(&Registry{}).Window(text, 0, edge, false, false),
				(&Registry{}).Window(text, edge, len(text), false, false)} {
				whole := strings.Contains(got, one)
				if part := strings.Contains(got, one[:5]) || strings.Contains(got, one[len(one)-5:]); part && !whole {
					t.Errorf("an edge at %d: %q", edge-at, got)
				}
			}
		}
	}
	if got := (&Registry{}).Window("before words behind", 0, 10, false, false); got != "before wor" {
		t.Errorf("control: %q", got)
	}
}
