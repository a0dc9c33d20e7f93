package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAnchors: a guard names the declaration that holds its code, and is found wherever that declaration is.
func TestAnchors(t *testing.T) {
	t.Chdir(t.TempDir())
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("a.go", "package a\n\ntype T struct{ n int }\n\nfunc (t *T) M() bool { return t.n > 0 }\n\n"+
		"func M() bool { return n > 0 }\n")
	put("b_linux.go", "package a\n\nvar (\n\tn = 1 // limit\n\tm = 1\n)\n\nfunc split() int { return 1 }\n")
	put("b_other.go", "package a\n\nfunc split() int { return 2 }\n\n"+
		"func wide() {\n\tg(\n\t\t1, f(2,\n\t\t\t3),\n\t)\n}\n")
	put("a_test.go", "package a\n\nfunc only() {}\n")
	put("guest.py", "x = 1\n")
	for _, c := range []struct{ why, in, file, from, want, err string }{
		{"a method", ". (*T).M", "", "n > 0", "a.go:4", ""},
		{"a function of the same name", ". M", "", "n > 0", "a.go:6", ""},
		{"one name of a group", ". m", "", "1", "b_linux.go:4", ""},
		{"one of two systems", ". split", "", "2", "b_other.go:2", ""},
		{"both of two systems", ". split", "", "return", "", "is in split of b_linux.go and of b_other.go"},
		{"a file that is not Go", "", "guest.py", "1", "guest.py:0", ""},
		{"code on several lines", ". wide", "", "g(1, f(2, 3))", "b_other.go:5", ""},
		{"code of another function", ". M", "", "t.n", "", "found 0 times"},
		{"a line with its indent", ". wide", "", "\tg(\n", "b_other.go:5", ""},
		{"a line with another indent", ". wide", "", "\t\tg(", "", "found 0 times"},
		{"a space at the end, where the line breaks", ". wide", "", "1, ", "b_other.go:6", ""},
		{"no words run together", ". wide", "", "f(23)", "", "found 0 times"},
		{"twice", ". M", "", "n", "", "found 3 times"},
		{"a name of a test", ". only", "", "func", "", "declares no only"},
		{"no name", ".", "", "x", "", "names no declaration"},
		{"no folder", "nowhere M", "", "x", "", "has no Go files"},
		{"no file", "", "gone.py", "x", "", "no such file"},
	} {
		clear(parsed)
		file, at, err := guard{in: c.in, file: c.file, from: c.from}.locate()
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.why, err, c.err)
			}
			continue
		}
		want, line, _ := strings.Cut(c.want, ":")
		src, rerr := os.ReadFile(filepath.Clean(want))
		if err != nil || rerr != nil || file != want ||
			string(rune('0'+strings.Count(string(src[:at.start]), "\n"))) != line {
			t.Errorf("%s: %s at %d, want %s: %v", c.why, file, at.start, c.want, err)
		}
	}
}

// TestBlocks: a blank line or the next guard ends a block. A key that is there twice is an error, and so is one too
// few.
func TestBlocks(t *testing.T) {
	const one = "guard: a\nfile: x\nfrom: a\nto: b\ntest: ./x\nrun: TestA\n"
	for text, want := range map[string]string{
		one + "\n" + one:            "",
		one + one:                   "",
		one + "to: c\n" + one:       "list:7: a second to in one block",
		"guard: a\n" + one:          "list:1: a guard needs",
		one + "file: y\nguard: b\n": "list:7: a second file in one block",
	} {
		all, err := parse(strings.NewReader(text), "list")
		if want == "" && (err != nil || len(all) != 2) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %d blocks, %v, wanted %q", text, len(all), err, want)
		}
	}
}
