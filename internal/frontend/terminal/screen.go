package terminal

import (
	"errors"
	"os"

	"golang.org/x/term"
)

// Choice is the value of --color.
type Choice string

// Colours is the value of --color. It is set once, before any output.
var Colours Choice = "auto"

func (v *Choice) String() string { return string(*v) }

func (v *Choice) Type() string { return "when" }

func (v *Choice) Set(s string) error {
	if s != "auto" && s != "always" && s != "never" {
		return errors.New("auto, always or never")
	}
	*v = Choice(s)
	return nil
}

// Coloured reports whether output to w has colours: at a colour terminal, or with --color always.
func Coloured(w any) bool {
	switch Colours {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && OnScreen(w)
}

// OnScreen reports whether w is a terminal.
func OnScreen(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
