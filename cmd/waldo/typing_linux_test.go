package main

import (
	"bufio"
	"bytes"
	"io"
	"os"

	"golang.org/x/term"

	"waldo/internal/frontend/terminal"
)

func init() { atPrompts = atEachPrompt }

// atEachPrompt returns the standard input and error of a command of a script. Where the script gives it a terminal (ttyin),
// each line is typed once a prompt is there, as a person does; testscript writes all of them before the command starts.
func atEachPrompt() (*os.File, io.Writer) {
	if !term.IsTerminal(int(os.Stdin.Fd())) || term.IsTerminal(int(os.Stderr.Fd())) {
		return os.Stdin, os.Stderr
	}
	master, slave, err := terminal.New()
	if err != nil {
		panic(err)
	}
	p := &prompts{keys: master, lines: bufio.NewReader(os.Stdin)}
	os.Stdin = slave
	return slave, p
}

type prompts struct {
	keys  *os.File
	lines *bufio.Reader
}

func (p *prompts) Write(b []byte) (int, error) {
	n, err := os.Stderr.Write(b)
	if bytes.HasSuffix(b, []byte(": ")) || bytes.HasSuffix(b, []byte("(yes/no) ")) {
		line, end := p.lines.ReadString('\n')
		if end != nil {
			line += "\x04"
		}
		_, _ = p.keys.WriteString(line)
	}
	return n, err
}
