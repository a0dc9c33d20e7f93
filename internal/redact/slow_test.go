package redact

import (
	"strings"
	"testing"
	"time"

	"waldo/internal/contract"
	"waldo/internal/secret"
)

// TestNoTextIsSlow redacts half a megabyte of each text that could make a search start again and again.
// The bound is a hundred times what an ordinary text needs: a quadratic search is far beyond it.
func TestNoTextIsSlow(t *testing.T) {
	g := &Registry{}
	_ = g.Add("env:K", secret.NewValue("aaaaaaaaaaaa"))
	p := New(contract.Redaction{Model: Classes()}, g, nil).pass(contract.Contract{})
	for _, piece := range []string{"token=", "ey.", "ey-", "sk-", "8Q~", "1 ", "12 ", "+1", "(", "a@", "@", "AB12 ", "-----BEGIN ", "-----BEGIN PRIVATE KEY----- ",
		"://a:", "\\u00", "%25", "&#", "\x1b]", "\x1b[", "bearer ", "password", "password=", "secret: \"", "1:", "ff:", "a", "1", "'\\''", "[EMAIL_1", "\u200b", "aaaaaaaaaaaab", "-u ", "SG.", "x_", "tskey-"} {
		text := strings.Repeat(piece, 1<<19/len(piece))
		took := time.Hour
		for range 3 { // on a busy machine one try says little
			start := time.Now()
			p.text(text)
			if took = min(took, time.Since(start)); took < 2*time.Second {
				break
			}
		}
		if took > 2*time.Second {
			t.Errorf("half a megabyte of %q took %s", piece, took)
		}
	}
}
