package secretsource

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"waldo/internal/model/secret"
)

const canary = "c4nary-of-a-secret"

// TestResolveEnv: each refusal has its own reason and shows no value.
func TestResolveEnv(t *testing.T) {
	env := map[string]string{"GOOD": canary, "EMPTY": "", "NUL": canary + "\x00"}
	s := Sources{Env: func(k string) (string, bool) { v, ok := env[k]; return v, ok }}
	v, err := s.Resolve("env:GOOD")
	if err != nil || v.Reveal() != canary {
		t.Fatalf("control: %v", err)
	}
	rows := []struct {
		why string
		ref secret.Ref
		err error
	}{
		{"a variable that is not set is not an empty secret", "env:ABSENT", ErrMissing},
		{"an empty secret would send an empty password", "env:EMPTY", ErrEmpty},
		{"a NUL ends a string in the kernel", "env:NUL", ErrBytes},
		{"a secret pasted in place of its name is not looked up", canary, ErrForm},
		{"a secret pasted after the scheme is not shown", "env:" + canary, ErrForm},
		{"a secret pasted after an unknown scheme is not shown", "vault:" + canary, ErrForm},
		{"files are closed unless opened", "file:/etc/hostname", ErrClosed},
		{"a .env file is a file", "dotenv:/etc/hostname#A", ErrClosed},
		{"a relative path depends on where waldo stands", "file:token", ErrForm},
		{"a path is what it says", "file:/run/../etc/shadow", ErrForm},
		{"nothing names nothing", "", ErrForm},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			v, err := s.Resolve(r.ref)
			if !errors.Is(err, r.err) || !v.IsZero() {
				t.Fatalf("got %v, want %v", err, r.err)
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("the error shows the secret: %v", err)
			}
		})
	}
	if _, err := (Sources{}).Resolve("env:GOOD"); !errors.Is(err, ErrClosed) {
		t.Errorf("the zero value resolves: %v", err)
	}
}

// TestParseEnv: accepted files with their values, and refused ones with the reason.
func TestParseEnv(t *testing.T) {
	rows := []struct{ why, text, want, refused string }{
		{"plain", "K=" + canary, canary, ""},
		{"export is allowed", "export K=" + canary, canary, ""},
		{"comments, empty lines and CRLF", "# c\r\n\r\n  # d\r\nK=v\r\n", "v", ""},
		{"the first = divides", "K=a=b==", "a=b==", ""},
		{"single quotes are literal", `K='a $b #c "\n'`, `a $b #c "\n`, ""},
		{"escapes between double quotes", `K="a\n\t\"\$\\b"`, "a\n\t\"$\\b", ""},
		{"shells expand, we do not", "K=pa$word", "", whyAmbiguous},
		{"shells expand between double quotes too", `K="pa$word"`, "", whyAmbiguous},
		{"some end at #, some do not", "K=a#b", "", whyAmbiguous},
		{"some trim spaces, some do not", "K= v", "", whyAmbiguous},
		{"an escape we do not know", `K="\x41"`, "", whyEscape},
		{"an escape at the end", `K="\`, "", whyEscape},
		{"an open quote would swallow the next line", "K='a\nL=b'", "", whyQuote},
		{"something after a quote", `K='a'b`, "", whyQuote},
		{"the last of two wins here, the first there", "K=a\nK=b", "", whyTwice},
		{"a line that is only a secret", canary, "", whyForm},
		{"a name that is none", "K-L=" + canary, "", whyForm},
		{"a control character", "K=a\x1b[0m", "", whyControl},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			got, err := ParseEnv([]byte(r.text))
			var pe *ParseError
			if errors.As(err, &pe); r.refused != "" {
				if pe == nil || pe.Why != r.refused {
					t.Fatalf("got %v, want %q", err, r.refused)
				}
				return
			}
			if err != nil || got["K"].Reveal() != r.want {
				t.Errorf("got %q, %v", got["K"].Reveal(), err)
			}
		})
	}
	if _, err := ParseEnv(make([]byte, maxFile+1)); !errors.Is(err, ErrTooBig) {
		t.Errorf("a file too big: %v", err)
	}
}

// FuzzParseEnv: an accepted value, written between double quotes, parses to the same value. A refusal gives one of
// the fixed reasons.
func FuzzParseEnv(f *testing.F) {
	for _, s := range []string{"K=v", "export K='a b'", `K="a\n\$"`, "K=a\nK=b", "K=$x", "\xff=\xfe", "K=\xff"} {
		f.Add([]byte(s))
	}
	fixed := []string{whyForm, whyTwice, whyControl, whyQuote, whyEscape, whyAmbiguous}
	enc := strings.NewReplacer("\n", `\n`, `"`, `\"`, "$", `\$`, `\`, `\\`)
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := ParseEnv(text)
		var pe *ParseError
		if errors.As(err, &pe) && !strings.Contains("|"+strings.Join(fixed, "|")+"|", "|"+pe.Why+"|") {
			t.Errorf("a reason of its own: %q", pe.Why)
		}
		for name, v := range all {
			if strings.Contains(v.Reveal(), "`") {
				continue // has no form between double quotes
			}
			again, err := ParseEnv([]byte(name + `="` + enc.Replace(v.Reveal()) + `"`))
			if err == nil && again[name].Reveal() == v.Reveal() {
				continue
			}
			if !errors.Is(err, ErrTooBig) {
				t.Errorf("%s: %q became %q, %v", name, v.Reveal(), again[name].Reveal(), err)
			}
		}
	})
}

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
