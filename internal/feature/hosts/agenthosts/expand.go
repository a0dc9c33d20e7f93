package agenthosts

import (
	"regexp"
	"strings"
)

// Var is the kind of a variable in a host's file.
type Var uint8

// The kinds of variables. Literal is text that stands for itself.
const (
	Literal   Var = iota
	FromEnv       // a variable of the host's environment
	Asked         // the host asks the person for the value
	InFile        // the content of a file
	Workspace     // the project's folder
	Home          // the person's home folder
	Odd           // something that only the host knows
)

// Part is a piece of a text: literal, or a variable.
type Part struct {
	Var     Var
	Text    string // literal text, or the variable's name
	Default string // where the variable is not set
	Whole   string // as it was written
}

// Words is a text with its variables found.
type Words []Part

// Raw returns the text as it was written.
func (w Words) Raw() string {
	var b strings.Builder
	for _, p := range w {
		b.WriteString(p.Whole)
	}
	return b.String()
}

// Sole returns the one variable that the text is; nil: it is more or other than that.
func (w Words) Sole() *Part {
	if len(w) == 1 && w[0].Var != Literal {
		return &w[0]
	}
	return nil
}

// Literal returns the text where it has no variable but folders, which are filled in.
func (w Words) Literal(workspace, home string) (string, bool) {
	var b strings.Builder
	for _, p := range w {
		switch {
		case p.Var == Literal:
			b.WriteString(p.Text)
		case p.Var == Workspace && workspace != "":
			b.WriteString(workspace)
		case p.Var == Home && home != "":
			b.WriteString(home)
		default:
			return "", false
		}
	}
	return b.String(), true
}

// syntax is how a host writes variables; find gives the name (and default) of each in groups.
type syntax struct {
	find *regexp.Regexp
	read func(groups []string) Part
}

func (s syntax) split(text string) Words {
	if s.find == nil {
		return Words{{Text: text, Whole: text}}
	}
	var out Words
	from := 0
	for _, m := range s.find.FindAllStringSubmatchIndex(text, -1) {
		groups := make([]string, len(m)/2)
		for i := range groups {
			if m[2*i] >= 0 {
				groups[i] = text[m[2*i]:m[2*i+1]]
			}
		}
		if m[0] > from {
			out = append(out, Part{Text: text[from:m[0]], Whole: text[from:m[0]]})
		}
		p := s.read(groups)
		p.Whole = groups[0]
		out = append(out, p)
		from = m[1]
	}
	if from < len(text) || len(out) == 0 {
		out = append(out, Part{Text: text[from:], Whole: text[from:]})
	}
	return out
}

const variable = `[A-Za-z_][A-Za-z0-9_]*`

// The variable syntaxes. A host without variables has none: text that looks like a variable is plain text.
var (
	none         = syntax{}
	dollarBraces = syntax{
		regexp.MustCompile(`\$\{(` + variable + `)(?::-([^}]*))?\}`),
		func(g []string) Part { return environment(g[1], g[2]) },
	}
	dollar = syntax{
		regexp.MustCompile(`\$\{(` + variable + `)(?::-([^}]*))?\}|\$(` + variable + `)`),
		func(g []string) Part { return environment(g[1]+g[3], g[2]) },
	}
	dollarColon = syntax{regexp.MustCompile(`\$\{([^}]*)\}`), func(g []string) Part {
		kind, name, _ := strings.Cut(g[1], ":")
		switch {
		case kind == "env" && name != "":
			return environment(name, "")
		case kind == "input" && name != "":
			return Part{Var: Asked, Text: name}
		case g[1] == "workspaceFolder":
			return Part{Var: Workspace, Text: g[1]}
		case g[1] == "userHome":
			return Part{Var: Home, Text: g[1]}
		case g[1] == "pathSeparator" || g[1] == "/":
			return Part{Text: "/"}
		}
		return Part{Var: Odd, Text: g[1]}
	}}
	curlyEnv = syntax{regexp.MustCompile(`\{(env|file):([^}]*)\}`), func(g []string) Part {
		if g[1] == "file" {
			return Part{Var: InFile, Text: g[2]}
		}
		return environment(g[2], "")
	}}
)

func environment(name, otherwise string) Part {
	if name == "HOME" {
		return Part{Var: Home, Text: name}
	}
	return Part{Var: FromEnv, Text: name, Default: otherwise}
}
