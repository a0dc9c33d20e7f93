package redact

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// hundred returns a hundred secrets of 40 letters and digits, the same every time.
func hundred(t testing.TB) *Registry {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	g := &Registry{}
	for i := range 100 {
		var b strings.Builder
		for range 40 {
			b.WriteByte(letters[r.IntN(len(letters))])
		}
		if err := g.Add(secret.Ref(fmt.Sprintf("env:S%d", i)), secret.NewValue(b.String())); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

const logLine = `{"time":"2026-11-20T12:00:00Z","level":"info","msg":"request served","path":"/api/v1/items",` +
	`"status":200,"ms":12.5,"id":"c_aarx3kd6m"}` + "\n"

// BenchmarkKnown looks for a hundred secrets in all their forms in a megabyte of log.
func BenchmarkKnown(b *testing.B) {
	m := hundred(b).matcher()
	for _, text := range []struct{ name, line string }{
		{"log", logLine},
		{"escaped", strings.ReplaceAll(logLine, `"`, `\"`)},
	} {
		b.Run(text.name, func(b *testing.B) {
			t := []byte(strings.Repeat(text.line, 1<<20/len(text.line)))
			b.SetBytes(int64(len(t)))
			for b.Loop() {
				if m.Has(t) {
					b.Fatal("a secret in a text without one")
				}
			}
		})
	}
}

// BenchmarkText redacts a megabyte of log in full: known secrets, makes, fields, personal data.
func BenchmarkText(b *testing.B) {
	p := New(contract.Redaction{Model: everyday}, hundred(b), nil).pass(contract.Contract{})
	t := strings.Repeat(logLine, 1<<20/len(logLine))
	b.SetBytes(int64(len(t)))
	for b.Loop() {
		p.text(t)
	}
}

// BenchmarkResult redacts the result of a call that answers with 1 KiB of JSON.
func BenchmarkResult(b *testing.B) {
	r := New(contract.Redaction{Model: everyday}, hundred(b), nil)
	text := "[" + strings.TrimSuffix(strings.Repeat(strings.TrimSpace(logLine)+",", 1024/len(logLine)), ",") + "]"
	o := call.Outcome{Content: []call.Content{call.Text(text)}}
	for b.Loop() {
		r.Result(policy.Decision{}, o)
	}
}

// BenchmarkKnownStream searches a log stream, in pieces of 4 KiB, for a hundred secrets in all their forms. As its
// floor, it copies the same bytes and searches them for one string.
func BenchmarkKnownStream(b *testing.B) {
	g := hundred(b)
	piece := []byte(strings.Repeat(logLine, 4096/len(logLine)))
	b.Run("secrets", func(b *testing.B) {
		b.SetBytes(int64(1024 * len(piece)))
		for b.Loop() {
			s := g.Stream(io.Discard)
			for range 1024 {
				_, _ = s.Write(piece)
			}
			_ = s.Close()
		}
	})
	b.Run("floor", func(b *testing.B) {
		b.SetBytes(int64(1024 * len(piece)))
		var buf []byte
		for b.Loop() {
			for range 1024 {
				if buf = append(buf, piece...); len(buf) >= bulk {
					if bytes.Contains(buf, []byte("wJ9rXUtnFEMI/K7MDENG")) {
						b.Fatal("a secret in a text without one")
					}
					buf = buf[:0]
				}
			}
		}
	})
}

// BenchmarkStream writes a megabyte of log in pieces of 4 KiB.
func BenchmarkStream(b *testing.B) {
	r := New(contract.Redaction{Model: everyday}, hundred(b), nil)
	piece := []byte(strings.Repeat(logLine, 4096/len(logLine)))
	b.SetBytes(int64(256 * len(piece)))
	for b.Loop() {
		s := r.Stream(io.Discard)
		for range 256 {
			_, _ = s.Write(piece)
		}
		_ = s.Close()
	}
}

// everyday are classes that a configuration may well name.
var everyday = []string{"secrets", email, phone, ssn, card}
