package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"waldo/internal/model/display"
)

// Asked is a question of an approval: whole, and its core in one line. Both are escaped.
type Asked interface {
	Show() string
	Short() string
}

// Question prints a question. At a terminal its last lines repeat what can have left the screen.
func Question(w io.Writer, q Asked) {
	text := string(Fit(w, display.Blanks(q.Show())))
	display.Fprintf(w, "%s", display.Text(text))
	if !OnScreen(w) {
		return
	}
	rows, bars := strings.Count(text, "\n"), strings.Count("\n"+text, "\n  |")
	last := fmt.Sprintf("The question has %s, %d of them behind a bar.\n", display.Count(rows, "row"), bars)
	if _, height := size(w); rows+lastRows > height {
		last += "It is longer than this screen: scroll up to its first row.\n"
	}
	display.Fprintf(w, "%s", Fit(w, display.Blanks(last+q.Short())+"\n"))
}

// lastRows are the rows that follow a question, with the prompt.
const lastRows = 5

// Fit breaks the lines of an escaped text for the terminal w; see display.Fit. Elsewhere lines stay whole.
func Fit(w io.Writer, text string) display.Text {
	if !OnScreen(w) {
		return display.Text(text)
	}
	width, _ := size(w)
	return display.Text(display.Fit(text, width))
}

// size returns the columns and rows of a terminal. One that does not know them is taken for 80 by 24.
func size(w io.Writer) (width, height int) {
	if f, ok := w.(*os.File); ok {
		width, height, _ = term.GetSize(int(f.Fd()))
	}
	if width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}
