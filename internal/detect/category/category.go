// Package category names the category of a command by a table, for the log. It reads the command as it is written and
// proves nothing: a program can do more than its name suggests.
package category

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

//go:embed categories.txt
var text string

// The bounds of what is read. Beyond them a command is of the category other.
const (
	maxText  = 256 << 10 // bytes
	maxDepth = 8         // of shells within shells
)

// Names are the categories, from the least serious to the most.
var Names = []string{"read", "write", "code", "other", "install", "network", "publish", "access"}

const (
	none  = -1
	read  = 0
	write = 1
	code  = 2
	other = 3
)

// programs maps a program, or a program and a word as in git/push, to a place in Names; a prefix to none.
var programs = sync.OnceValue(func() map[string]int {
	m := map[string]int{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		for i := 1; i < len(words) && words[0] != "#"; i++ {
			m[words[i]] = slices.Index(Names, words[0])
		}
	}
	return m
})

// Of returns the category of a call's command: of argv, of command as text for a shell, or of code in another language.
// Empty: the call has no command. Of several programs the most serious counts.
func Of(capability string, args map[string]any) string {
	at := none
	if list, is := args["argv"].([]any); is {
		words := make([]string, len(list))
		for i, one := range list {
			words[i], _ = one.(string)
		}
		at = command(words, 0)
	} else if line, is := args["command"].(string); is {
		at = shell(line, 0)
	} else if _, is := args["code"].(string); is && strings.HasPrefix(capability, "run_") {
		at = code
	}
	if at == none {
		return ""
	}
	return Names[at]
}

// command returns the category of one command.
func command(words []string, depth int) int {
	at := none
	for ; len(words) > 0; words = words[1:] {
		category, known := programs()[words[0]]
		if name, _, assigns := strings.Cut(words[0], "="); !assigns || strings.ContainsAny(name, "/-") {
			if known && category == none {
				at = read
			} else if at == none || !option(words[0]) {
				break
			}
		}
	}
	if len(words) == 0 {
		return at
	}
	program := words[0][strings.LastIndexByte(words[0], '/')+1:]
	at, known := programs()[program]
	if !known {
		at = other
	}
	for i, w := range words[1:] {
		switch sub, known := programs()[program+"/"+w]; {
		case known:
			return sub
		case strings.HasPrefix(w, "-") && strings.HasSuffix(w, "c") && strings.HasSuffix(program, "sh") && i+2 < len(words):
			return shell(words[i+2], depth+1)
		}
	}
	if program == "eval" {
		return shell(strings.Join(words[1:], " "), depth+1)
	}
	return at
}

// option reports whether a word behind a prefix belongs to the prefix: it is an option, a number or a duration.
func option(w string) bool {
	return strings.HasPrefix(w, "-") || strings.Trim(w, "0123456789.smhd") == ""
}

// shell returns the category of text for a shell.
func shell(line string, depth int) int {
	if len(line) > maxText {
		return other
	}
	p := parser{text: line, most: none}
	p.list(0, depth)
	return p.most
}

// parser reads text for a shell.
type parser struct {
	text string
	at   int
	most int      // the most serious category so far
	here []string // the ends of here-documents that begin behind this line
}

// Where a word belongs.
const (
	argument = iota
	output   // the file behind ">"
	input    // the file behind "<"
	heredoc  // the word behind "<<"
)

// list reads commands up to a byte, or to the end.
func (p *parser) list(end byte, depth int) {
	if depth > maxDepth {
		p.most, p.at = max(p.most, other), len(p.text)
		return
	}
	var words []string
	var word []byte
	begun, quote, role := false, byte(0), argument
	flush := func() {
		w := string(word)
		switch {
		case !begun:
			return
		case role == argument:
			words = append(words, w)
		case role == heredoc:
			p.here = append(p.here, w)
		case role == output && w != "/dev/null" && strings.Trim(w, "&0123456789-") != "":
			p.most = max(p.most, write)
		}
		word, begun, role = nil, false, argument
	}
	run := func() {
		flush()
		p.most, words = max(p.most, command(words, depth)), nil
	}
	add := func(c byte) { word, begun = append(word, c), true }
	for p.at < len(p.text) {
		c := p.text[p.at]
		p.at++
		switch {
		case c == '\\' && quote != '\'':
			if p.at < len(p.text) && p.text[p.at] != '\n' {
				add(p.text[p.at])
			}
			p.at++
		case quote == 0 && (c == '\'' || c == '"'):
			quote, begun = c, true
		case quote != 0 && c == quote:
			quote = 0
		case quote == '\'':
			add(c)
		case c == end && end != 0 && quote == 0:
			run()
			return
		case c == '$' && p.next("(("):
			p.to("))")
			add('0')
		case c == '`':
			p.list('`', depth+1)
			add('?')
		case c == '$' && p.next("("):
			p.list(')', depth+1)
			add('?')
		case quote == '"':
			add(c)
		case c == '(':
			p.list(')', depth+1)
		case c == '#' && !begun:
			p.to("\n")
			p.at--
		case c == '\n':
			run()
			p.documents()
		case c == '>':
			if strings.Trim(string(word), "0123456789") == "" {
				word, begun = nil, false
			}
			flush()
			for p.next(">") || p.next("|") || p.next("&") {
			}
			role = output
		case c == '<':
			flush()
			if role = input; p.next("<<") {
			} else if p.next("<-") || p.next("<") {
				role = heredoc
			}
		case c == ';' || c == '&' || c == '|' || c == ')':
			run()
		case c == ' ' || c == '\t' || c == '\r':
			flush()
		default:
			add(c)
		}
	}
	run()
}

// next passes over some text if it comes next.
func (p *parser) next(s string) bool {
	is := strings.HasPrefix(p.text[min(p.at, len(p.text)):], s)
	if is {
		p.at += len(s)
	}
	return is
}

// to passes over everything up to the end of some text.
func (p *parser) to(s string) {
	if _, rest, found := strings.Cut(p.text[p.at:], s); found {
		p.at = len(p.text) - len(rest)
	} else {
		p.at = len(p.text) + 1
	}
}

// documents passes over the here-documents of the line before.
func (p *parser) documents() {
	for _, end := range p.here {
		for p.at < len(p.text) {
			line, _, _ := strings.Cut(p.text[p.at:], "\n")
			p.at += len(line) + 1
			if strings.TrimLeft(line, "\t") == end {
				break
			}
		}
	}
	p.here = nil
}
