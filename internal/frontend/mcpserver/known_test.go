package mcpserver

import (
	"reflect"
	"testing"
)

// A kind of content that the client's revision has not is a text.
func TestOlderClients(t *testing.T) {
	audio, link := map[string]any{"type": "audio"}, map[string]any{"type": "resource_link", "uri": "waldo://s/x"}
	for _, row := range []struct {
		revision, kind string
		block, want    any
	}{
		{"2024-11-05", "audio", audio, text("[audio left out]")},
		{"2025-03-26", "audio", audio, audio},
		{"", "audio", audio, audio},
		{"2024-11-05", "resource_link", link, text("waldo://s/x")},
		{"2025-03-26", "resource_link", link, text("waldo://s/x")},
		{"2025-06-18", "resource_link", link, link},
		{"", "resource_link", link, link},
	} {
		if got := known(row.revision, row.kind, row.block); !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s %s: %v", row.revision, row.kind, got)
		}
	}
}
