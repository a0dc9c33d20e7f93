package secret

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
)

// TestBits: a secret that a person chooses is under 64 bits, and a generated one is not.
func TestBits(t *testing.T) {
	for _, s := range []string{
		"", "a", "hunter2", "Summer2024!", "passwordpassword", "s3cr3t-s3cr3t-s3cr3t", "abcdefghijklmnopqrstuvwxyz012345",
		strings.Repeat("x", 100), strings.Repeat("hunter2!", 20), "qwertyuiop", "12345678901234567890", "correcthorse",
	} {
		if got := NewValue(s).Bits(); got >= 64 {
			t.Errorf("%q: %d bits", s, got)
		}
	}
	for range 2000 {
		b := make([]byte, 30)
		_, _ = rand.Read(b)
		for _, s := range []string{
			"ghp_" + base64.RawURLEncoding.EncodeToString(b[:15]), base64.StdEncoding.EncodeToString(b),
			hex.EncodeToString(b[:16]),
		} {
			if got := NewValue(s).Bits(); got < 64 {
				t.Errorf("%q: %d bits", s, got)
			}
		}
	}
}

// FuzzBits: a text has no more bits than its bytes, and says so in bounded time.
func FuzzBits(f *testing.F) {
	f.Add("hunter2")
	f.Add("ghp_x7Kq29ZvB4mN1pWs")
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 4096 {
			return
		}
		if got := NewValue(s).Bits(); got < 0 || got > 8*len(s) {
			t.Errorf("%q: %d bits", s, got)
		}
	})
}
