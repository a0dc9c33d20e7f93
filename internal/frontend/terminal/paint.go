package terminal

import (
	"io"

	"waldo/internal/model/display"
)

// Paint escapes text and, on a terminal, wraps it in a colour.
type Paint bool

func Painter(w io.Writer) Paint { return Paint(Coloured(w)) }

func (p Paint) wrap(code, s string) display.Text {
	if !p {
		return display.Line(s)
	}
	return "\x1b[" + display.Text(code) + "m" + display.Line(s) + "\x1b[0m"
}

func (p Paint) Good(s string) display.Text { return p.wrap("32", s) }
func (p Paint) Bad(s string) display.Text  { return p.wrap("31", s) }
func (p Paint) Warn(s string) display.Text { return p.wrap("33", s) }
func (p Paint) Dim(s string) display.Text  { return p.wrap("2", s) }
func (p Paint) Head(s string) display.Text { return p.wrap("1;36", s) }
