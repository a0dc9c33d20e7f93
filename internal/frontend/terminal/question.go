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

// widest is the most columns of a question's row. Any process of this user can set the window wider in the kernel
// than it is. Then the window would break the rows, and the rest of a row would have no bar.
const widest = 80

// Drawn is a question as it was printed: for a window of some size.
type Drawn struct {
	w             io.Writer
	width, height int // 0: it is no terminal
}

// Question prints a question. At a terminal its last lines repeat what can have left the screen.
func Question(w io.Writer, q Asked) Drawn {
	text := display.Blanks(q.Show())
	if !OnScreen(w) {
		display.Fprintf(w, "%s", display.Text(text))
		return Drawn{w: w}
	}
	d := Drawn{w: w}
	d.width, d.height = size(w)
	fit := func(text string) string { return display.Fit(text, min(d.width, widest)) }
	text = fit(text)
	rows, bars := strings.Count(text, "\n"), strings.Count("\n"+text, "\n  |")
	last := fmt.Sprintf("The question has %s, %d of them behind a bar.\n", display.Count(rows, "row"), bars)
	if rows+lastRows > d.height {
		last += "It is longer than this screen: scroll up to its first row.\n"
	}
	display.Fprintf(w, "%s%s", display.Text(text), display.Text(fit(display.Blanks(last+q.Short())+"\n")))
	return d
}

// Resized reports whether the window has another size than the question was printed for.
func (d Drawn) Resized() bool {
	if d.width == 0 {
		return false
	}
	width, height := size(d.w)
	return width != d.width || height != d.height
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

// Words returns a writer to w for the words of somebody else, as those of a model. At a terminal each line begins with
// a bar.
func Words(w io.Writer) io.Writer {
	if !OnScreen(w) {
		return w
	}
	width, _ := size(w)
	return display.Barred(w, min(width, widest))
}

// Own breaks a line of waldo's own that quotes somebody else.
func Own(w io.Writer, text display.Text) display.Text {
	if !OnScreen(w) {
		return text
	}
	width, _ := size(w)
	return display.Text(display.Fit(string(text), min(width, widest)))
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
