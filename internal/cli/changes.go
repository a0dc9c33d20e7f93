package cli

import (
	"io"

	"waldo/internal/model/display"
	"waldo/internal/model/facts"
)

// TellChanges lists what a run changed below its writable mounts, where the person chose what becomes of it.
func TellChanges(w io.Writer, c *facts.Changes, mode string) {
	const most = 40
	if c == nil || mode == "" || len(c.Written)+len(c.Renamed)+len(c.Removed) == 0 {
		return
	}
	lines := c.Lines()
	for _, l := range lines[:min(most, len(lines))] {
		display.Fprintf(w, "%s\n", l)
	}
	if more := len(lines) - most; more > 0 {
		display.Fprintf(w, "and %s\n", display.Count(more, "more change"))
	}
	switch mode {
	case "keep":
		display.Fprintf(w, "hint: waldo changes %s shows them, waldo changes --undo %s takes them back\n", c.ID, c.ID)
	case "review":
		display.Fprintf(w, "hint: waldo changes %s shows them, waldo changes %s apply takes them\n", c.ID, c.ID)
	}
}
