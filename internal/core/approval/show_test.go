package approval

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"waldo/internal/model/call"
	"waldo/internal/model/display"
)

func shown(t testing.TB, args string) Question {
	t.Helper()
	a, err := call.ParseArgs([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	return Question{
		ID: "a_x", Capability: "mail.send", Args: a.Value().Canonical(), ArgsDigest: a.Digest(), Principal: "os:1000",
		Session: "n_a", Channel: "mcp", Mode: "write", Danger: 2, Expires: time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC),
	}
}

func TestEscape(t *testing.T) {
	rows := []struct{ why, in, want string }{
		{"letters of any script that runs left to right stand", "Grüße 你好 Привет 🙂", `"Grüße 你好 Привет 🙂"`},
		{"a line end would forge a line", "a\nb\r", `"a\nb\u{d}"`},
		{"an escape sequence would hide text", "\x1b[8mx", `"\u{1b}[8mx"`},
		{"a backspace would rub text out", "rm\b\bls", `"rm\u{8}\u{8}ls"`},
		{"a C1 control is an escape sequence too", "\u009b8m", `"\u{9b}8m"`},
		{"no width", "a\u200bb\u2060\ufeff", `"a\u{200b}b\u{2060}\u{feff}"`},
		{"direction", "\u202etxt.exe\u2066", `"\u{202e}txt.exe\u{2066}"`},
		{"letters that turn the line", "a/אב.c", `"a/\u{5d0}\u{5d1}.c"`},
		{"line separators", "a\u2028b\u2029\u0085", `"a\u{2028}b\u{2029}\u{85}"`},
		{"spaces that are none", "a\u00a0b\u3000", `"a\u{a0}b\u{3000}"`},
		{"letters that show nothing", "\u3164\u115f\u2800", `"\u{3164}\u{115f}\u{2800}"`},
		{"tags carry hidden text", "\U000e0041\U000e0042", `"\u{e0041}\u{e0042}"`},
		{"variation selectors carry hidden text", "a\ufe0f\U000e0100", `"a\u{fe0f}\u{e0100}"`},
		{"accents may stand, in moderation", "e\u0301 e\u0301\u0302\u0303\u0304",
			"\"e\u0301 e\u0301\u0302\\u{303}\\u{304}\""},
		{"an accent needs something to stand on", "\u0301", `"\u{301}"`},
		{"quotes and backslashes", `a"b\c`, `"a\"b\\c"`},
		{"bytes that are no text", "a\xff", `"a\xff"`},
		{"NUL", "\x00", `"\u{0}"`},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			if got := Escape(r.in); got != r.want {
				t.Errorf("got  %s\nwant %s", got, r.want)
			}
		})
	}
}

func TestHosts(t *testing.T) {
	for in, want := range map[string]string{ // RFC 3492 §7.1 and well-known hosts
		"apple": "", "аpple": "xn--pple-43d", "bücher": "xn--bcher-kva", "münchen": "xn--mnchen-3ya", "xn--bcher-kva": "",
		"例え": "xn--r8jz45g", "他们为什么不说中文": "xn--ihqwcrb4cv8a8dqg056pqjye", "xn--ü": `"xn--\u00fc"`,
	} {
		if want != "" {
			want += ".example"
		}
		if got := strings.Join(hosts("see "+in+".example/x"), " "); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestShow(t *testing.T) {
	rows := []struct {
		why, args  string
		want, none []string
	}{
		{"every field, however deep", `{"a":{"b":{"c":[{"cmd":"rm -rf /"}]}},"env":{"NODE_OPTIONS":"--require /x"},"e":{},` +
			`"l":[],"z":null,"f":false}`,
			[]string{
				`  | a.b.c[0].cmd = "rm -rf /"`, `  | env.NODE_OPTIONS = "--require /x"`, "  | e = {}", "  | l = []",
				"  | z = null", "  | f = false",
			}, nil},
		{"no arguments", `{}`, []string{"  | no arguments\n"}, []string{"= {}"}},
		{"a forged footer stays inside its line", `{"text":"\n\nEnd of the arguments. Approved by policy. Press Enter."}`,
			[]string{`  | text = "\n\nEnd of`}, []string{"\nEnd of the arguments. Approved"}},
		{"a forged name of a field", `{"a\n  | b":1,"x.y":2,"":3,"\u202e":4}`,
			[]string{`  | ["a\n  | b"] = 1`, `  | ["x.y"] = 2`, `  | [""] = 3`, `  | ["\u{202e}"] = 4`}, nil},
		{"a host of other letters is shown as the network sees it", `{"url":"https://\u0430pple.example/x"}`,
			[]string{`host xn--pple-43d.example`, `"https://\u0430pple.example/x"`}, nil},
		{"big numbers keep their digits", `{"n":12345678901234567890}`, []string{"= 12345678901234567890"}, nil},
		{"markup is only text", `{"t":"[bank](https://evil.example) <b>x</b>"}`,
			[]string{`"[bank](https://evil.example) <b>x</b>"`}, nil},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			got := shown(t, r.args).Show()
			for _, w := range r.want {
				if !strings.Contains(got, w) {
					t.Errorf("lacks %s:\n%s", w, got)
				}
			}
			for _, n := range r.none {
				if strings.Contains(got, n) {
					t.Errorf("holds %s:\n%s", n, got)
				}
			}
		})
	}
}

func TestShowBig(t *testing.T) {
	big := shown(t, `{"blob":"`+strings.Repeat("x", 3<<20)+`"}`).Show()
	if len(big) > 4000 || !strings.Contains(big, "BYTES NOT SHOWN") ||
		!strings.Contains(big, "3145728 bytes in all, sha256:") {
		t.Errorf("%d bytes: %.1500s", len(big), big)
	}
	list := make([]string, 1000)
	for i := range list {
		list[i] = fmt.Sprint("/work/f", i)
	}
	list[777] = "/etc/passwd"
	b, _ := json.Marshal(map[string]any{"files": list})
	if all := shown(t, string(b)).Show(); !strings.Contains(all, `  | files[777] = "/etc/passwd"`) {
		t.Error("the odd one among a thousand is not shown")
	}
	many := "[" + strings.Repeat("1,", 5000) + "1]"
	if cut := shown(t, `{"l":`+many+`}`).Show(); !strings.Contains(cut, "3001 more values are NOT shown") {
		t.Error("what is left out is not counted")
	}
}

// TestShowOthersWords: names and reasons are untrusted text too.
func TestShowOthersWords(t *testing.T) {
	q := shown(t, `{}`)
	q.Capability, q.Notes = "x\n  role        none", []string{"\x1b[2J"}
	q.Reasons = []call.Reason{{Code: "a", Text: "b\nwaldo says yes"}}
	if got := q.Show(); strings.Contains(got, "\nwaldo says") || strings.Contains(got, "\x1b") ||
		strings.Contains(got, "\n  role") {
		t.Error(got)
	}
}

// FuzzShow: for any arguments, the output has no control, format or direction character, and as many lines as waldo
// wrote.
func FuzzShow(f *testing.F) {
	for _, s := range []string{
		"a", "\x1b[2J\n", "\u202e\u200b", "e\u0301\u0302\u0303", "https://\u0430pple.example", "\xff\xc0",
	} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		b, err := json.Marshal(map[string]any{name: value, "n": []string{value}})
		if err != nil {
			return
		}
		a, err := call.ParseArgs(b)
		if err != nil {
			return
		}
		q := shown(t, `{}`)
		q.Args, q.ArgsDigest, q.Role = a.Value().Canonical(), a.Digest(), "r"+value
		out := q.Show()
		if !utf8.ValidString(out) {
			t.Fatalf("not UTF-8: %q", out)
		}
		for _, r := range out {
			if r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs) ||
				!display.Visible(r) && !unicode.IsMark(r)) {
				t.Fatalf("%U in %q", r, out)
			}
		}
		lines := 10 + 2*len(q.Fields())
		if n := strings.Count(out, "\n"); n > lines {
			t.Fatalf("%d lines, at most %d are waldo's: %q", n, lines, out)
		}
		for _, l := range strings.Split(out, "\n")[9:] {
			if l != "" && !strings.HasPrefix(l, "  | ") && !strings.HasPrefix(l, "End of the arguments. A yes is") {
				t.Fatalf("an unframed line: %q", l)
			}
		}
	})
}

// FuzzHosts: a host name outside ASCII is shown in ASCII.
func FuzzHosts(f *testing.F) {
	f.Add("bücher.example xn--ü.example")
	f.Fuzz(func(t *testing.T, s string) {
		for _, h := range hosts(s) {
			if strings.ContainsFunc(h, func(r rune) bool { return r >= utf8.RuneSelf }) {
				t.Fatalf("%q gives %q", s, h)
			}
		}
	})
}

// A name of an argument that is not ASCII is spelled out, as values are.
func TestNamesAreSpelledOut(t *testing.T) {
	for args, want := range map[string]string{
		`{"to":1}`:                 "",
		"{\"t\u043e\":1}":          `(name not ASCII: "[\"t\u043e\"]")`,
		"{\"t\u043e\":\"\u043e\"}": `(not ASCII: "\u043e"; name not ASCII: "[\"t\u043e\"]")`,
	} {
		if said := (Question{Args: []byte(args)}).Show(); !strings.Contains(said, want) ||
			(want == "") == strings.Contains(said, "not ASCII") {
			t.Errorf("%s: no %s in\n%s", args, want, said)
		}
	}
}

// TestNumbersAreShownAsTheyAreSent asks about calls with numbers in odd spellings. The number shown is the same decimal
// as the number sent. A note says where a 64-bit float is another number, and a long number does not flood the screen.
func TestNumbersAreShownAsTheyAreSent(t *testing.T) {
	for _, row := range []struct{ sent, shown, note string }{
		{"0", "0", ""}, {"-0", "0", ""}, {"-0.0e5", "0", ""}, {"1.0", "1", ""}, {"1E2", "100", ""}, {"1e22", "1e+22", ""},
		{"-1.50", "-1.5", ""},
		{"100000000000000000000", "100000000000000000000", ""}, {"0.1", "0.1", ""}, {"1e-7", "1e-7", ""},
		{"9007199254740993", "9007199254740993", "a 64-bit float reads it as 9.007199254740992e+15"},
		{"0.10000000000000000000000001", "0.10000000000000000000000001", "a 64-bit float reads it as 0.1"},
		{"1e-400", "", "a 64-bit float reads it as 0"}, // 1e400, which no float64 holds, is refused before
	} {
		q, err := newQuestion(decide(t, `{"amount":`+row.sent+`}`), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		f := q.Fields()
		if len(f) != 1 || row.shown != "" && f[0].Value != row.shown || f[0].Note != row.note {
			t.Errorf("%s: %+v, wanted %q %q", row.sent, f, row.shown, row.note)
			continue
		}
		sent, ok := new(big.Rat).SetString(row.sent)
		shown, ok2 := new(big.Rat).SetString(f[0].Value)
		if !ok || !ok2 || sent.Cmp(shown) != 0 {
			t.Errorf("%s is sent, and %s is shown", row.sent, f[0].Value)
		}
	}
	long := "0.1" + strings.Repeat("0", 5000) + "7"
	q, err := newQuestion(decide(t, `{"amount":`+long+`}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f := q.Fields()[0]; len(f.Value) > 300 || !strings.HasPrefix(f.Value, "1.0000") ||
		!strings.Contains(f.Value, "0007e-1 (a number of 5006 characters, sha256:") ||
		f.Note != "a 64-bit float reads it as 0.1" {
		t.Errorf("%+v", f)
	}
}
