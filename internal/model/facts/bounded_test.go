package facts

import (
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/quick"
)

// TestBounded: facts within the bounds stay unchanged; facts that sandboxed code inflates are cut.
func TestBounded(t *testing.T) {
	f := New()
	f.Files.Written, f.Warnings = []string{"/workspace/output/a"}, []string{"a warning"}
	if got := f.Bounded(); !reflect.DeepEqual(got, f) {
		t.Errorf("control: %+v", got)
	}
	many := make([]string, 10_000)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	f.Files.Artifacts = many
	for range 300 {
		f.Files.Written = append(f.Files.Written, strings.Repeat("x", 4096))
		f.Denials = append(f.Denials, Denial{Kind: "network", What: strings.Repeat("h", 250)})
		f.Network.Attempts = append(f.Network.Attempts, Attempt{Host: strings.Repeat("h", 250)})
		f.Network.Packages = append(f.Network.Packages, Package{Name: strings.Repeat("p", 5000)})
	}
	whole := len(f.AppendJSON(nil))
	got := f.Bounded()
	if n := len(got.AppendJSON(nil)); n > 128<<10 || whole < 1<<20 {
		t.Errorf("%d bytes of facts became %d", whole, n)
	}
	if len(got.Files.Artifacts) != MaxList || len(got.Files.Written) > 9 || got.Files.Written[0] != f.Files.Written[0] ||
		!strings.HasPrefix(got.Files.Written[1], "… (4096 bytes, sha256 ") {
		t.Errorf("%d artifacts, %d written", len(got.Files.Artifacts), len(got.Files.Written))
	}
	want := []string{"files.written", "files.artifacts", "denials", "network.attempts", "network.packages"}
	if !slices.Equal(got.Cut, want) {
		t.Errorf("cut names %q", got.Cut)
	}
	if len(f.Files.Artifacts) != len(many) || len(f.Files.Written[1]) != 4096 || f.Cut != nil {
		t.Error("the facts themselves were changed")
	}
	if again := got.Bounded(); !reflect.DeepEqual(again, got) {
		t.Error("bounded twice is not bounded once")
	}
}

// TestBoundedIsBounded: for any facts, their lists hold at most MaxTexts bytes each.
func TestBoundedIsBounded(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for range 300 {
		v, _ := quick.Value(reflect.TypeFor[[]string](), random)
		f := New()
		f.Warnings = v.Interface().([]string)
		for i := range f.Warnings {
			f.Warnings[i] = strings.Repeat(f.Warnings[i], random.Intn(100))
		}
		got := f.Bounded()
		size := 0
		for i, s := range got.Warnings {
			if size += len(s); len(s) > MaxText || s != f.Warnings[i] && s != Short(f.Warnings[i]) {
				t.Fatalf("text %d has %d bytes", i, len(s))
			}
		}
		if size > MaxTexts || (len(got.Warnings) < len(f.Warnings)) != (len(got.Cut) > 0) {
			t.Fatalf("%d bytes in %d of %d texts, cut %v", size, len(got.Warnings), len(f.Warnings), got.Cut)
		}
	}
}

// A text that is too long shows no part of itself: redaction would not find the part of a secret.
func TestShortShowsNoPart(t *testing.T) {
	if s := Short(strings.Repeat("secret", MaxText)); strings.Contains(s, "secret") || !strings.Contains(s, "sha256") {
		t.Error(s)
	}
	if s := strings.Repeat("a", MaxText); Short(s) != s {
		t.Error("a text within the bound is changed")
	}
}
