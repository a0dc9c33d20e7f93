package files

import (
	"strings"
	"testing"

	"waldo/internal/core/redact"
	"waldo/internal/detect"
	"waldo/internal/executor/admit"
	"waldo/internal/executor/direct"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// TestHiddenIsNoOracle: neither a search nor an edit tells a part of what a model is not shown, and no line is cut in it.
func TestHiddenIsNoOracle(t *testing.T) {
	const token, card = "kxs2TfvwaXtMKuyNTE6XP9Y1tRqiF8auWMh5qCzz", "4111111111111111"
	known := &redact.Registry{}
	if err := known.Add("tok", secret.NewValue(token)); err != nil {
		t.Fatal(err)
	}
	hide := redact.New(contract.Redaction{Model: []string{"secrets", "credit_card"}}, known, nil)
	root := folder(t, map[string]string{
		"a.txt": "MARK " + token + " END\nCARD " + card + " END\nplain words END\n",
		"l.txt": "LONG " + strings.Repeat("x", 256) + " " + token + " tail\n",
	})
	tools := direct.New(Tools("", files.Machine{}, admit.Own(), hide)...)
	search := func(query string, regex bool) string {
		_, got := useOf(t, t.Context(), tools, root, "files.search", m{"query": query, "regex": regex})
		return got
	}
	for query, want := range map[string]bool{
		"plain w[a-o]":          true, // controls
		"MARK \\[SECRET\\] END": true,
		"^CARD .* END$":         true,
		"MARK k[a-z]":           false,
		"MARK (k[a-z].*|\\[SECRET\\] END)X|MARK kx": false,
		"CARD 4[0-4]": false,
		"CARD 4":      false,
	} {
		if got := search(query, true); strings.Contains(got, "a.txt:") != want {
			t.Errorf("%s: %s", query, got)
		}
	}
	for query, want := range map[string]bool{"MARK ": true, "MARK " + token + " E": true, "MARK k": false, "zz END": false,
		"CARD 411": false, "CARD " + card: true} {
		if got := search(query, false); strings.Contains(got, "a.txt:") != want {
			t.Errorf("%q: %s", query, got)
		}
	}
	if got := search("LONG", false); !strings.Contains(got, "xxx") || strings.Contains(got, token[:4]) {
		t.Errorf("a line is cut in a secret: %s", got)
	}
	edit := func(old string) bool {
		out, _ := useOf(t, t.Context(), tools, root, "files.edit", m{"path": "a.txt", "old": old, "new": old + "!"})
		return !out.IsError && out.Refused == nil
	}
	for old, want := range map[string]bool{"MARK k": false, "MARK kx": false, "11 END": false, "CARD ": true, "plain words": true} {
		if edit(old) != want {
			t.Errorf("an edit of %q is done: %v", old, !want)
		}
	}
}

// TestExcerptOfOverlaps: a cut that moves out of one hidden range is not left in another.
func TestExcerptOfOverlaps(t *testing.T) {
	line := strings.Repeat("a", maxFoundAt+100)
	hidden := []detect.Find{{Start: 10, End: maxFoundAt - 5}, {Start: maxFoundAt - 20, End: maxFoundAt + 20}}
	if got := excerpt(line, hidden); got != line[:10]+"…" {
		t.Errorf("two that overlap: %d characters", len(got))
	}
	if got := excerpt(line, hidden[1:]); got != line[:maxFoundAt-20]+"…" {
		t.Errorf("one: %d characters", len(got))
	}
	if got := excerpt(line, nil); got != line[:maxFoundAt]+"…" {
		t.Errorf("control: %d characters", len(got))
	}
}
