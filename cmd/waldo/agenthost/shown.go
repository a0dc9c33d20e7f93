package agenthost

import (
	"io"
	"strings"

	"waldo/internal/agenthosts"
	"waldo/internal/app/hostfiles"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/display"
)

// TellShown prints the files that the servers' sandboxes can see.
func TellShown(w io.Writer, list []hostfiles.Shown) {
	for _, s := range list {
		display.Fprintf(w, "server %s is shown %s\n", s.Server, listed(s.Files))
	}
}

// listed names what is shown, in quoted words where a name could paint the screen.
func listed(shown []files.Mount) string {
	var out []string
	for _, m := range shown {
		text := agenthosts.Show(m.Source)
		if m.Source != m.Target {
			text += " at " + agenthosts.Show(m.Target)
		}
		out = append(out, text+" ("+m.Why+")")
	}
	return strings.Join(out, ", ")
}
