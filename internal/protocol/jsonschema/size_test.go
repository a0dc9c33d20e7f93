package jsonschema

import (
	"strings"
	"testing"

	"waldo/internal/protocol/strictjson"
)

// TestLargeSchema refuses a schema of more bytes than are taken, and takes one below.
func TestLargeSchema(t *testing.T) {
	for size, want := range map[int]bool{MaxBytes - 100: true, MaxBytes: false} {
		v, err := strictjson.Parse([]byte(`{"type":"object","description":"` + strings.Repeat("x", size) + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Compile(v); (err == nil) != want {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
