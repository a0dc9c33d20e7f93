package detect

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
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
	python.WriteString("]\n_ISSUED = [\n")
	javascript.WriteString("  ];\n  const issued = [\n")
	for _, i := range issued {
		fmt.Fprintf(&python, "    (%d, %d, %d, %d),\n", i.from, i.to, i.least, i.most)
		fmt.Fprintf(&javascript, "    [%d, %d, %d, %d],\n", i.from, i.to, i.least, i.most)
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

// shared are texts that results and the scrub functions of sandboxes judge alike: the class, or "" for none.
var shared = []struct{ text, class string }{
	{"4111 1111 1111 1111", Card}, {"4111+1111+1111+1111", Card}, {"4111%201111%201111%201111", Card},
	{"4111  1111  1111  1111", Card}, {"4111.1111.1111.1111", Card}, {"378282246310005", Card}, {"3782-822463-10005", Card},
	{"4532-1234-5678-9010", Card}, {"4111 1111 1111 1112", ""}, {"4111111111111112", ""}, {"9111-1111-1111-1112", ""},
	{"4111-1111 1111-1111", ""}, {"[.4301.0020.0011.0001]", ""}, {"order 1234567890123456", ""},
	{"ada@mail.example.org", Email}, {"ada@163.com", Email}, {"golang.org/toolchain@v0.0.1-go1.99.linux-amd64", ""},
	{"golang.org/toolchain@v0.0.1-go1.99", ""}, {"icons-64x64@2.tar", ""}, {"icon@2x.png", ""},
}

// TestShared: one table decides for results and for the guests.
func TestShared(t *testing.T) {
	on := map[Class]bool{Card: true, Email: true}
	var text, want []string
	for _, row := range shared {
		plain := strings.ReplaceAll(row.text, "%20", " ") // as a view decodes it
		class := ""
		if f := In([]byte(plain), on); len(f) > 0 {
			class = f[0].Class
		}
		if class != row.class {
			t.Errorf("%q: %q, wanted %q", row.text, class, row.class)
		}
		text = append(text, row.text)
		if want = append(want, "["+strings.ToUpper(row.class)+"]"); row.class == "" {
			want[len(want)-1] = row.text
		}
	}
	if Secret("password: rejected") || !Secret("password: tr0ub4dor") {
		t.Error("a state is no secret, and a password is one")
	}
	q, _ := json.Marshal(text)
	for name, argv := range map[string][]string{
		"python3": {"-c", "import sys, json; sys.path.insert(0, '../sandbox/guest/python'); import waldo; " +
			"print('\\n'.join(waldo.scrub(json.loads(sys.argv[1]))))"},
		"node": {"-e", "const lib = eval(require('fs').readFileSync('../sandbox/guest/javascript/waldo.js', 'utf8'))(require); " +
			"console.log(lib.globals.scrub(JSON.parse(process.argv[1])).join('\\n'))"},
	} {
		program, err := exec.LookPath(name)
		if err != nil {
			t.Logf("%s is not installed: its scrub is not judged", name)
			continue
		}
		out, err := exec.Command(program, append(argv, string(q))...).CombinedOutput()
		got := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
		if err != nil || len(got) != len(want) {
			t.Errorf("%s: %v: %s", name, err, out)
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: %q became %q, wanted %q", name, text[i], got[i], want[i])
			}
		}
	}
}

// TestCardForms: a card of a table with empty cells, and the first track of one, are cards; a decimal number is none.
func TestCardForms(t *testing.T) {
	for text, want := range map[string]int{
		"4111111111111111.0":            1,
		"a,4111111111111111.00,b":       1,
		"%B4111111111111111^LOVELACE/A": 1, // track 1
		"4111111111111111.5":            0,
		"4111111111111111.01":           0,
		"4111111111111111.0e3":          0,
		"1.4111111111111111":            0,
		"4111111111111112.0":            0,
		"xB4111111111111111^":           0,
	} {
		if f := In([]byte(text), map[Class]bool{Card: true}); len(f) != want {
			t.Errorf("%q has %v", text, f)
		}
	}
}
