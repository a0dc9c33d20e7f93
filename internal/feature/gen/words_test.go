package gen

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSplit(t *testing.T) {
	for command, want := range map[string][]string{
		"":                         nil,
		"  a\tb\n c ":              {"a", "b", "c"},
		`a 'b c' "d e"`:            {"a", "b c", "d e"},
		`a'b'"c"d`:                 {"abcd"},
		`'' ""`:                    {"", ""},
		`a\ b \'c`:                 {"a b", "'c"},
		`"a\"b\\c\d\$e"`:           {`a"b\c\d$e`},
		`'a\b'`:                    {`a\b`},
		"a\\\nb":                   {"ab"},
		`$HOME ~ *.go $(id) a;b|c`: {"$HOME", "~", "*.go", "$(id)", "a;b|c"},
	} {
		got, err := split(command)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q %v, want %q", command, got, err, want)
		}
	}
	for _, command := range []string{`a 'b`, `a "b`, `a \`, `"a\"`} {
		if got, err := split(command); err == nil {
			t.Errorf("%q was taken: %q", command, got)
		}
	}
}

// FuzzSplit: the words are those of a shell, for commands without characters that it expands.
func FuzzSplit(f *testing.F) {
	f.Add(`a 'b c' "d\"e" f\ g`)
	f.Fuzz(func(t *testing.T, command string) {
		if strings.ContainsAny(command, "$`~*?[]{}()<>|&;#!=\x00%") || !utf8.ValidString(command) ||
			strings.ContainsAny(command, "\r\v\f") {
			return
		}
		words, err := split(command)
		if err != nil || strings.Contains(command, "\n") {
			return
		}
		out, serr := exec.CommandContext(t.Context(), "/bin/dash", "-c",
			"set -- "+command+"\nfor w; do printf '%s\\0' \"$w\"; done").Output()
		if serr != nil {
			t.Skip("this machine has no dash, or it takes another command")
		}
		if got := strings.Join(append(words, ""), "\x00"); got != string(out) {
			t.Errorf("%q: %q, a shell %q", command, got, out)
		}
	})
}
