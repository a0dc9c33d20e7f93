package redact

import (
	"strings"
	"testing"
	"time"

	"waldo/internal/detect"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// TestNoTextIsSlow redacts 128 KiB of each text that could restart a search repeatedly. The bound is half a second or, on
// a slow machine, 150 times an ordinary text's time: a quadratic search far exceeds it.
func TestNoTextIsSlow(t *testing.T) {
	g := &Registry{}
	_ = g.Add("env:K", secret.NewValue("aaaaaaaaaaaa"))
	p := New(contract.Redaction{Model: detect.Classes()}, g, nil).pass(contract.Contract{})
	const bound = time.Second / 2
	takes := func(piece string) time.Duration {
		text := strings.Repeat(piece, 1<<17/len(piece))
		start := time.Now()
		p.text(text)
		return time.Since(start)
	}
	for _, piece := range []string{
		"token=", "ey.", "ey-", "sk-", "8Q~", "1 ", "12 ", "+1", "(", "a@", "@", "AB12 ", "-----BEGIN ",
		"-----BEGIN PRIVATE KEY----- ", "://a:", "\\u00", "%25", "&#", "\x1b]", "\x1b[", "bearer ", "password", "password=",
		"secret: \"", "1:", "ff:", "a", "1", "'\\''", "[EMAIL_1", "\u200b", "aaaaaaaaaaaab", "-u ", "SG.", "x_", "tskey-",
		"4539578763621486;", "4539 5787 6362 1486 ", "4539578763621486\n",
		"EAAAAAAAPHwBIgf4AAEAAD4MYAQAASIsU8kiJxkjB6A1IJf8fAABIi7zCA/",
		"000 ", "0", "jane@x.example 219-09-9999 ",
	} {
		took, ordinary := time.Hour, time.Duration(0)
		for range 3 { // on a busy machine one try says little
			took = min(took, takes(piece))
			if took > bound {
				ordinary = max(ordinary, takes("An ordinary sentence, of words. "))
			}
			if took <= bound || took < 150*ordinary {
				break
			}
		}
		if took > bound && took >= 150*ordinary {
			t.Errorf("128 KiB of %q took %s, of words %s", piece, took, ordinary)
		}
	}
}
