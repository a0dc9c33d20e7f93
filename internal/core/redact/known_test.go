package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"waldo/internal/detect/scrub"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// encodings are ways in which a secret is printed by programs that mean no harm.
var encodings = []struct {
	why string
	of  func(string) string
}{
	{"as it is", func(s string) string { return s }},
	{"JSON", quoteJSON},
	{"JSON in JSON", func(s string) string { return quoteJSON(quoteJSON(s)) }},
	{"JSON in JSON in JSON", func(s string) string { return quoteJSON(quoteJSON(quoteJSON(s))) }},
	{"every character as \\u", func(s string) string {
		out := ""
		for _, r := range s {
			q := strconv.QuoteToASCII(string(r))
			if r < 0x80 {
				q = `"\u00` + hex.EncodeToString([]byte{byte(r)}) + `"`
			}
			out += q[1 : len(q)-1]
		}
		return out
	}},
	{"Go", strconv.Quote},
	{"query", url.QueryEscape},
	{"path", url.PathEscape},
	{"query in small letters", func(s string) string { return strings.ToLower(url.QueryEscape(s)) }},
	{"query twice", func(s string) string { return url.QueryEscape(url.QueryEscape(s)) }},
	{"HTML", html.EscapeString},
	{"hex", func(s string) string { return hex.EncodeToString([]byte(s)) }},
	{"HEX", func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) }},
	{"base64", func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }},
	{"base64 after one byte", func(s string) string { return base64.StdEncoding.EncodeToString([]byte("u" + s)) }},
	{"base64 after two bytes", func(s string) string { return base64.StdEncoding.EncodeToString([]byte("u:" + s + "!")) }},
	{"base64 for URLs", func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("?" + s + "??")) }},
	{"shell", func(s string) string { return `'` + strings.ReplaceAll(s, `'`, `'\''`) + `'` }},
	{"shell with double quotes", func(s string) string { return `'` + strings.ReplaceAll(s, `'`, `'"'"'`) + `'` }},
}

func quoteJSON(s string) string {
	b, _ := json.Marshal(s) // a string encodes
	return string(b)
}

// TestKnownSecretInEveryEncoding hides a secret of every kind in every encoding, and only it.
func TestKnownSecretInEveryEncoding(t *testing.T) {
	for _, value := range []string{
		"wJ9rXUtnFEMI/K7MDENG+bPxRfiCYzzTESTKEYq", `Tr0ub4dor&3 "quoted"\x'y`, "pässwörd-日本-77", "hunter2!", "six6c!",
	} {
		g := &Registry{}
		_ = g.Add("env:K", secret.NewValue(value))
		p := New(contract.Redaction{Model: []string{}}, g, nil).pass(contract.Contract{})
		for _, e := range encodings {
			if strings.ToLower(url.QueryEscape(value)) != url.QueryEscape(value) && e.why == "query in small letters" &&
				strings.ToLower(value) != value {
				continue // small letters make another secret of it
			}
			t.Run(e.why+"/"+value, func(t *testing.T) {
				enc := e.of(value)
				got := p.text("k: " + enc + " end")
				if !strings.Contains(got, secretMask) || !strings.HasSuffix(got, " end") || !strings.HasPrefix(got, "k: ") {
					t.Fatalf("%q became %q", enc, got)
				}
				// the rest is quotes, or a character of base64 that holds a part of a byte
				if len(got) > len("k: "+secretMask+" end")+24 {
					t.Errorf("%q became %q", enc, got)
				}
			})
		}
	}
}

// TestPart: half of a secret, in any case, is a part of it; what texts have in common is not.
func TestPart(t *testing.T) {
	const value = "Zk3vQ9rT1xWb7LmN4cYp8sHd2fGj6uEa"
	g := &Registry{}
	for name, v := range map[secret.Ref]string{"a": value, "short": "s3cr3t", "long": strings.Repeat("-", 100) + value[:30]} {
		if err := g.Add(name, secret.NewValue(v)); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]bool{value: true, "tool_" + value[:28]: true, strings.ToLower(value[4:20]): true,
		"x_S3CR3T_x": true, value[:15] + "x" + value[15:30]: false, "s3cr3": false, "list_customers": false, "": false,
		strings.Repeat("-", 23): false} {
		if g.Part(text) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
}

func TestHidingOneSecretDoesNotSpellAnother(t *testing.T) {
	g := &Registry{}
	_ = g.Add("env:A", secret.NewValue("[SECRET] and more"))
	_ = g.Add("env:B", secret.NewValue("abcdef"))
	p := New(contract.Redaction{}, g, nil).pass(contract.Contract{})
	if got := p.text("x abcdef and more y"); got != "x [SECRET] y" {
		t.Errorf("got %q", got)
	}
	_ = g.Add("env:C", secret.NewValue("SECRET"))
	p = New(contract.Redaction{}, g, nil).pass(contract.Contract{})
	if got := p.text("x SECRET y"); got != secretMask {
		t.Errorf("a secret that its own mask spells: %q", got)
	}
}

func TestStreamWhereverItIsCut(t *testing.T) {
	g := &Registry{}
	_ = g.Add("env:K", secret.NewValue(known))
	r := New(contract.Redaction{Model: everyday}, g, nil)
	for pad := 0; pad < 2500; pad += 7 {
		for _, hide := range []string{
			known, "jane.doe@mail.example.org", "-----BEGIN PRIVATE KEY-----\nMIIB" + strings.Repeat("x", 900) +
				"\n-----END PRIVATE KEY-----",
		} {
			text := strings.Repeat(". ", pad) + hide + strings.Repeat(" .", 2500)
			var out bytes.Buffer
			s := r.Stream(&out)
			for b := []byte(text); len(b) > 0; {
				n := min(len(b), 601)
				_, _ = s.Write(b[:n]) // a buffer does not fail
				b = b[n:]
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			got := strings.Trim(out.String(), ". ")
			if got != secretMask && got != "[EMAIL]" {
				t.Fatalf("after %d bytes %.30q became %q", 2*pad, hide, got)
			}
		}
	}
}

// TestStreamIsRead: who looks while the writer goes on sees the lines that are whole, and nothing that may
// be the beginning of something to hide.
func TestStreamIsRead(t *testing.T) {
	const key = "-----BEGIN PRIVATE KEY-----\nMIIB\n"
	for _, of := range []struct {
		why, write, want string
		known            bool
	}{
		{"lines", "one\ntwo\nthr", "one\ntwo\n", false},
		{"a prompt", "hello\nName: ", "hello\nName: ", false},
		{"a word that may go on", "write to jane@x", "", false},
		{"a number that may go on", "one\n4111 1111 ", "one\n", false},
		{"an address in a whole line", "to jane@x.example\n", "to [EMAIL]\n", false},
		{"a key without its end", "see\n" + key, "see\n", false},
		{"a key", key + "-----END PRIVATE KEY-----\n", secretMask + "\n", false},
		{"secrets are known, and may be of lines", "one\ntwo\n", "", true},
	} {
		t.Run(of.why, func(t *testing.T) {
			t.Parallel()
			g, out := &Registry{}, make(chan string, 2) // the output so far, and the rest at the end
			if of.known {
				_ = g.Add("env:K", secret.NewValue(known))
			}
			s := New(contract.Redaction{Model: everyday}, g, nil).Stream(told(out))
			_, _ = s.Write([]byte(of.write))
			got, patience := "", 5*soon
			if of.want != "" {
				patience = time.Minute // on a busy machine soon is later
			}
			select {
			case got = <-out:
			case <-time.After(patience):
			}
			if got != of.want {
				t.Errorf("%q is seen, want %q", got, of.want)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

type told chan string

func (c told) Write(b []byte) (int, error) { c <- string(b); return len(b), nil }

// TestStreamLearns: a secret that becomes known while a stream is open is hidden from then on, also
// where its first bytes were written before.
func TestStreamLearns(t *testing.T) {
	for _, of := range []struct {
		name string
		open func(*Registry, io.Writer) *Stream
	}{
		{"all", func(g *Registry, w io.Writer) *Stream {
			return New(contract.Redaction{Model: everyday}, g, nil).Stream(w)
		}},
		{"known alone", func(g *Registry, w io.Writer) *Stream { return g.Stream(w) }},
	} {
		t.Run(of.name, func(t *testing.T) {
			g, out := &Registry{}, &bytes.Buffer{}
			s := of.open(g, out)
			_, _ = s.Write([]byte("before " + known[:9])) // a buffer does not fail
			if err := g.Add("env:K", secret.NewValue(known)); err != nil {
				t.Fatal(err)
			}
			_, _ = s.Write([]byte(known[9:] + " after"))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != "before [SECRET] after" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestRotatedSecretsStayKnown: the value before is as secret as the one in force.
func TestRotatedSecretsStayKnown(t *testing.T) {
	g := &Registry{}
	for i := range maxOld + 2 {
		if err := g.Add("env:K", secret.NewValue(fmt.Sprintf("rotated-%02d-value", i))); err != nil {
			t.Fatal(err)
		}
	}
	_ = g.Add("env:K", secret.NewValue("rotated-05-value")) // is known, and the newest again
	_ = g.Add("env:K", secret.NewValue("rotated-99-value"))
	for i, want := range map[int]string{
		9: "[SECRET]", 5: "[SECRET]", 4: "[SECRET]", 2: "rotated-02-value", 99: "[SECRET]",
	} {
		if got := g.Text(fmt.Sprintf("rotated-%02d-value", i)); got != want {
			t.Errorf("%d: %q", i, got)
		}
	}
}

func TestStreamSaysThatTheWriterFailed(t *testing.T) {
	s := New(contract.Redaction{}, nil, nil).Stream(broken{})
	_, _ = s.Write([]byte("x")) // held back
	if err := s.Close(); err == nil {
		t.Error("nothing was said")
	}
	if _, err := s.Write([]byte("x")); err == nil {
		t.Error("a broken stream took more")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestKnownBeforePersonal(t *testing.T) {
	g := &Registry{}
	_ = g.Add("env:K", secret.NewValue("tok jane@x.example-tail-of-the-secret"))
	p := New(contract.Redaction{}, g, nil).pass(contract.Contract{})
	if got := p.text("is tok jane@x.example-tail-of-the-secret."); got != "is [SECRET]." {
		t.Errorf("got %q", got)
	}
}

// FuzzKnown states that redacted text shows no known secret, regardless of the text around it.
func FuzzKnown(f *testing.F) {
	f.Add("hunter2!", "a ", " b", uint8(0))
	f.Add("wJ9r/K7+", "x\\", "%41", uint8(2))
	f.Add("p\u00e4ss\\\"w", "'", "\\u00", uint8(6))
	f.Add("SECRET", "[", "]", uint8(0))
	f.Fuzz(func(t *testing.T, value, before, after string, which uint8) {
		if len(value) < scrub.MinSecret || len(value) > 200 || strings.Contains("[SECRET][EMAIL][PHONE][CREDIT_CARD][SSN]", value) {
			return
		}
		g := &Registry{}
		_ = g.Add("env:K", secret.NewValue(value))
		p := New(contract.Redaction{}, g, nil).pass(contract.Contract{})
		p.clean = false
		e := encodings[int(which)%len(encodings)]
		text := before + e.of(value) + after
		if got := p.text(text); strings.Contains(got, value) {
			t.Errorf("%s: %q became %q, which holds %q", e.why, text, got, value)
		}
		if strings.Contains(text, value) && p.text(text) == text {
			t.Errorf("%q stayed", text)
		}
	})
}

// FuzzStream states that a stream shows no known secret wherever it is cut, and loses no byte of a
// text that has nothing to hide.
func FuzzStream(f *testing.F) {
	f.Add("hunter2!", "before ", " after", uint16(3), uint16(700))
	f.Add("-----BEGIN", "jane@x.example", "4111 1111 1111 1111", uint16(1), uint16(5000))
	f.Fuzz(func(t *testing.T, value, before, after string, piece, pad uint16) {
		if len(value) < scrub.MinSecret || len(value) > 100 || strings.Contains("[SECRET][EMAIL][PHONE][CREDIT_CARD][SSN]", value) {
			return
		}
		g := &Registry{}
		_ = g.Add("env:K", secret.NewValue(value))
		r := New(contract.Redaction{Model: []string{}}, g, nil)
		text := before + strings.Repeat(". ", int(pad)%4000) + value + after + strings.Repeat(" .", int(pad)%3000) + value
		var out bytes.Buffer
		s := r.Stream(&out)
		for b := []byte(text); len(b) > 0; {
			n := min(len(b), int(piece)%300+1)
			if _, err := s.Write(b[:n]); err != nil {
				t.Fatal(err)
			}
			b = b[n:]
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), value) {
			t.Errorf("%q is shown", value)
		}
		var bulky bytes.Buffer
		o := g.Stream(&bulky)
		for b := []byte(text); len(b) > 0; {
			n := min(len(b), int(piece)%300+1)
			_, _ = o.Write(b[:n])
			b = b[n:]
		}
		_ = o.Close()
		if strings.Contains(bulky.String(), value) {
			t.Errorf("%q is shown by the stream of known secrets", value)
		}
		if plainText := strings.Repeat("nichts für 日本\n", int(pad)%500); plainText != "" &&
			!strings.Contains(plainText, value) {
			var same bytes.Buffer
			q := New(contract.Redaction{Model: []string{}}, nil, nil).Stream(&same)
			for b := []byte(plainText); len(b) > 0; {
				n := min(len(b), int(piece)%300+1)
				_, _ = q.Write(b[:n])
				b = b[n:]
			}
			_ = q.Close()
			if same.String() != plainText {
				t.Errorf("%d bytes became %d", len(plainText), same.Len())
			}
		}
	})
}

// FuzzRoundTrip states that tokens from the model restore to the tool's original values.
func FuzzRoundTrip(f *testing.F) {
	f.Add("mail jane@x.example or +1 (415) 555-0132 [EMAIL_1] [TEXT_2]")
	f.Add("078-05-1120 \"4111 1111 1111 1111\" \\")
	f.Fuzz(func(t *testing.T, s string) {
		r, d, _ := desk(t)
		p := r.show(d)
		p.clean = false
		if strings.ContainsRune(s, '\uFFFD') || strings.ToValidUTF8(s, "") != s ||
			strings.ToLower(s) != s && strings.Contains(s, "@") {
			return // addresses that differ in case are one
		}
		seen := p.text(s)
		if strings.Contains(seen, secretMask) || len(s) > 1000 {
			return
		}
		for _, c := range []string{"[EMAIL]", "[PHONE]", "[SSN]", "[CREDIT_CARD]"} {
			if strings.Contains(seen, c) {
				return
			}
		}
		a, err := json.Marshal(map[string]string{"x": seen})
		if err != nil {
			t.Fatal(err)
		}
		d.Call.Args = args(t, string(a))
		back, err := r.Restore(d)
		if err != nil {
			t.Fatal(err)
		}
		if got := back.Values()["x"]; got != s {
			t.Errorf("%q was shown as %q and came back as %q", s, seen, got)
		}
	})
}

// FuzzJSON states that redacting JSON gives JSON.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"a":["jane@x.example",1.5,{"password":"x y"}],"b":4111111111111111}`))
	f.Add([]byte(`{"a@x.example":1,"b@x.example":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := New(contract.Redaction{Model: everyday, Tokens: true}, nil, nil).pass(contract.Contract{})
		if got := p.json(b); !json.Valid(got) {
			t.Errorf("%q became %q", b, got)
		}
	})
}
