package main

import (
	"io"
	"strings"

	"waldo/internal/model/display"
	"waldo/internal/sandbox"
)

// paint escapes text and, on a terminal, wraps it in a colour.
type paint bool

func painter(w io.Writer) paint { return paint(coloured(w)) }

func (p paint) wrap(code, s string) display.Text {
	if !p {
		return display.Line(s)
	}
	return "\x1b[" + display.Text(code) + "m" + display.Line(s) + "\x1b[0m"
}

func (p paint) good(s string) display.Text { return p.wrap("32", s) }
func (p paint) bad(s string) display.Text  { return p.wrap("31", s) }
func (p paint) warn(s string) display.Text { return p.wrap("33", s) }
func (p paint) dim(s string) display.Text  { return p.wrap("2", s) }
func (p paint) head(s string) display.Text { return p.wrap("1;36", s) }

// tellReports prints the verified abilities of each driver, one per line, with hints for missing ones.
func tellReports(w io.Writer, reports []sandbox.Report) {
	p := painter(w)
	for _, r := range reports {
		verdict := p.good("works here")
		if !r.OK {
			verdict = p.bad("does not work here")
		}
		display.Fprintf(w, "%s: %s\n", p.head(r.Driver), verdict)
		told := ""
		for _, a := range r.Abilities {
			mark := p.good("ok     ")
			switch {
			case !a.OK && a.Need:
				mark = p.bad("no     ")
			case !a.OK:
				mark = p.warn("missing")
			}
			display.Fprintf(w, "  %s %-31s %s\n", mark, a.Name, a.What)
			if !a.OK && a.Hint != "" && a.Hint != told { // once for abilities that are lost together
				told = a.Hint
				display.Fprintf(w, "       %s\n", display.Text(strings.ReplaceAll(string(display.Lines(a.Hint)), "\n  | ", "\n       ")))
			}
		}
	}
}
