package display

import (
	"os/exec"
	"strings"
	"testing"
)

// ShellAll's result is one line of ASCII, and bash reads the same bytes from it.
func TestShellIsExact(t *testing.T) {
	words := []string{
		"plain", "", "two words", "it's", "a\\b", "$(id)", "`id`", "\x1b[2Jgone", "line\nbreak", "\r", "\u202egnp.exe",
		"аpple", "e\u0301", "\U000E0041tag", "\u200b", "~", "#x", "-n", "\x7f",
	}
	shown := ShellAll(words)
	for _, c := range []byte(shown) {
		if c < ' ' || c > '~' {
			t.Fatalf("a byte %#x in %q", c, shown)
		}
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal("bash is what people paste into: ", err)
	}
	cmd := exec.Command(bash, "-c", `printf '%s\0' `+shown)
	cmd.Env = []string{"LC_ALL=C.UTF-8"}
	got, err := cmd.Output()
	if err != nil || string(got) != strings.Join(words, "\x00")+"\x00" {
		t.Errorf("%s: %v\n%q", shown, err, got)
	}
}
