package detect

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"waldo/internal/detect/data"
	"waldo/internal/detect/words"
)

// Each token's example is found whole. One that is a character too short, or begins otherwise, is not.
func TestTokens(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range data.Tokens() {
		if seen[row.ID] || row.Vendor == "" || row.Source != "vendor" && !strings.HasPrefix(row.Source, "gitleaks:") {
			t.Errorf("%s: an id of its own, a vendor and a source are wanted", row.ID)
		}
		seen[row.ID] = true
		for _, text := range []string{row.Example, "x " + row.Example + " y", "<" + row.Example + ">"} {
			f := In([]byte(text), nil)
			if len(f) != 1 || text[f[0].Start:f[0].End] != row.Example || f[0].Class != Secrets {
				t.Errorf("%s: %q has %v", row.ID, text, f)
			}
		}
		if len(row.Example) != len(row.Prefix)+row.Min {
			t.Errorf("%s: the example is no shortest one", row.ID)
		}
		short := row.Example[:len(row.Example)-1]
		for _, miss := range []string{short, "%" + row.Example[1:]} {
			if f := In([]byte("x "+miss+" y"), nil); len(f) != 0 && !longer(miss) {
				t.Errorf("%s: the near miss %q has %v", row.ID, miss, f)
			}
		}
	}
	if len(seen) < 180 {
		t.Errorf("%d rows", len(seen))
	}
}

// longer reports whether another row finds the near miss of one.
func longer(miss string) bool {
	for _, row := range data.Tokens() {
		for i := range 3 {
			if i < len(miss) && strings.HasPrefix(miss[i:], row.Prefix) && len(miss)-i >= len(row.Prefix)+row.Min {
				return true
			}
		}
	}
	return false
}

func TestNames(t *testing.T) {
	secrecy := func(s string) int { return words.Secrecy([]byte(s)) }
	const chance = "x9Kq0vTz72LmPwe1"
	finds := func(s string) bool { return Secret(s) }
	for _, w := range data.Names("strong") {
		name := "my_" + strings.ReplaceAll(w, "-", "_")
		if secrecy(name) != 2 || !words.Asks(name) || !words.Setting(name) || !finds(name+`: "tr0ub4dor"`) {
			t.Errorf("%s is no strong name", name)
		}
		if w != "pwd" && secrecy("my_"+w[:len(w)-2]) == 2 {
			t.Errorf("%s is a strong name before its end", w)
		}
	}
	for _, w := range data.Names("weak") {
		if secrecy(w) != 1 || secrecy("my_"+w) != 1 || !finds(w+`: "`+chance+`"`) || finds(w+`: "tr0ub4dor"`) {
			t.Errorf("%s is no weak name", w)
		}
		if w != "token" && secrecy(w+"zz") != 0 {
			t.Errorf("%s is found in a longer word", w)
		}
	}
	for _, w := range data.Names("about") {
		if secrecy("password_"+w) != 0 || secrecy(w+"_password") != 2 && secrecy(w+"_password") != 0 {
			t.Errorf("password_%s tells of a password, %s_password is one", w, w)
		}
		if !words.Asks("password_" + w) {
			t.Errorf("a form may ask for password_%s", w)
		}
	}
	for _, w := range data.Names("setting") {
		if up := strings.ToUpper(strings.ReplaceAll(w, "-", "_")); !words.Setting("MY_"+up) || words.Setting(up+"ABLE") &&
			w != "bearer" && secrecy(up+"ABLE") == 0 {
			t.Errorf("%s is no name of a setting", up)
		}
	}
	for _, w := range data.Names("ask") {
		if !words.Asks("Your "+strings.ToUpper(w)) || w != "token" && words.Asks("x"+w+"x") {
			t.Errorf("a form may ask for %s", w)
		}
	}
	for _, plain := range []string{"author", "monkey", "region", "secretary", "shopping", "PATH"} {
		if secrecy(plain) == 2 || words.Asks(plain) && plain != "secretary" || words.Setting(plain) {
			t.Errorf("%s is a name of a secret", plain)
		}
	}
}

type person struct{ id, class, pattern, example, miss string }

// persons returns the sorts of personal data.
func persons(t *testing.T) (out []person) {
	table, err := os.ReadFile("data/personal.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(table)) {
		if l[0] == '#' {
			continue
		}
		c := strings.Split(strings.TrimRight(l, "\n"), "\t")
		if len(c) != 6 {
			t.Fatalf("%d columns: %q", len(c), l)
		}
		out = append(out, person{c[0], c[1], c[2], c[4], c[5]})
	}
	return out
}

func TestPersons(t *testing.T) {
	for _, row := range persons(t) {
		on := map[Class]bool{row.class: true}
		if f := In([]byte("x "+row.example+" y"), on); len(f) != 1 || f[0].Class != row.class {
			t.Errorf("%s: %q has %v", row.id, row.example, f)
		}
		if f := In([]byte("x "+row.miss+" y"), on); len(f) != 0 {
			t.Errorf("%s: the near miss %q has %v", row.id, row.miss, f)
		}
		if f := In([]byte("x "+row.example+" y"), nil); len(f) != 0 {
			t.Errorf("%s: %q is found without its class", row.id, row.example)
		}
	}
}

// The code that sandboxes get knows the same names and the same personal data. WALDO_UPDATE=1 writes it anew.
func TestGuests(t *testing.T) {
	var names []string
	for _, kind := range []string{"strong", "scrub"} {
		for _, n := range data.Names(kind) {
			names = append(names, strings.ReplaceAll(n, "-", "[_-]?"))
		}
	}
	secret := strings.Join(names, "|")
	var python, javascript strings.Builder
	fmt.Fprintf(&python, "_SECRET = r\"%s\"\n_PERSONAL = [\n", secret)
	fmt.Fprintf(&javascript, "  const secretName = /%s/i;\n  const personal = [\n", secret)
	for _, row := range persons(t) {
		if row.pattern == "-" {
			continue
		}
		instead := "[" + strings.ToUpper(row.class) + "]"
		fmt.Fprintf(&python, "    (r\"%s\", \"%s\"),\n", row.pattern, instead)
		fmt.Fprintf(&javascript, "    [/%s/g, '%s'],\n", row.pattern, instead)
	}
	python.WriteString("]\n")
	javascript.WriteString("  ];\n")
	for file, want := range map[string]string{
		"../sandbox/guest/python/waldo.py": python.String(), "../sandbox/guest/javascript/waldo.js": javascript.String(),
	} {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		section := regexp.MustCompile(`(?s)([#/]+ internal/detect/data: begin\n)(.*?)( *[#/]+ internal/detect/data: end\n)`)
		m := section.FindSubmatchIndex(src)
		if m == nil {
			t.Fatalf("%s has no section of internal/detect/data", file)
		}
		if string(src[m[4]:m[5]]) == want {
			continue
		}
		if os.Getenv("WALDO_UPDATE") == "" {
			t.Errorf("%s is not what internal/detect/data gives: WALDO_UPDATE=1 go test ./internal/detect", file)
			continue
		}
		if err := os.WriteFile(file, []byte(string(src[:m[4]])+want+string(src[m[5]:])), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
