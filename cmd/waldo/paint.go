package main

import (
	"fmt"
	"io"
	"strings"

	"waldo/internal/sandbox"
)

// paint wraps text in a colour on a terminal and leaves it alone elsewhere.
type paint bool

func painter(w io.Writer) paint { return paint(terminal(w)) }

func (p paint) wrap(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p paint) good(s string) string { return p.wrap("32", s) }
func (p paint) bad(s string) string  { return p.wrap("31", s) }
func (p paint) warn(s string) string { return p.wrap("33", s) }
func (p paint) dim(s string) string  { return p.wrap("2", s) }
func (p paint) head(s string) string { return p.wrap("1;36", s) }

// tellReports prints what each driver has proven, one ability a line, with what to do about the
// missing ones.
func tellReports(w io.Writer, reports []sandbox.Report) {
	p := painter(w)
	for _, r := range reports {
		verdict := p.good("works here")
		if !r.OK {
			verdict = p.bad("does not work here")
		}
		fmt.Fprintf(w, "%s: %s\n", p.head(r.Driver), verdict)
		told := ""
		for _, a := range r.Abilities {
			mark := p.good("ok  ")
			switch {
			case !a.OK && a.Need:
				mark = p.bad("no  ")
			case !a.OK:
				mark = p.warn("lost")
			}
			fmt.Fprintf(w, "  %s %-24s %s\n", mark, a.Name, a.What)
			if !a.OK && a.Hint != "" && a.Hint != told { // once for abilities that are lost together
				told = a.Hint
				fmt.Fprintf(w, "       %s\n", p.dim(strings.ReplaceAll(a.Hint, "\n", "\n       ")))
			}
		}
	}
}
