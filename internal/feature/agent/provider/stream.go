package provider

import (
	"bufio"
	"bytes"
	"io"
	"strings"

	"waldo/internal/feature/agent/chat"
	"waldo/internal/protocol/strictjson"
)

// lines reads lines that end in LF, CR LF or CR, and passes each on without its end. A last line without an end is
// passed on only with rest.
func lines(r io.Reader, rest bool, each func(line []byte) error) error {
	in := bufio.NewReaderSize(r, 16<<10)
	var line []byte
	for after := byte(0); ; {
		c, err := in.ReadByte()
		switch {
		case err == io.EOF && rest && len(line) > 0:
			return each(line)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case c == '\n' && after == '\r':
		case c == '\n' || c == '\r':
			if err := each(line); err != nil {
				return err
			}
			line = line[:0]
		case len(line) == maxLine:
			return malformed("a line of the answer is longer than %d bytes", maxLine)
		default:
			line = append(line, c)
		}
		after = c
	}
}

// events reads server-sent events (HTML Living Standard §9.2.6) and passes on the data of each. An event that the end
// of the stream cuts is dropped.
func events(r io.Reader, each func(data []byte) error) error {
	var data []byte
	has, first := false, true
	return lines(r, false, func(line []byte) error {
		if first {
			line, first = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")), false
		}
		if len(line) == 0 {
			if !has {
				return nil
			}
			err := each(data)
			data, has = data[:0], false
			return err
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		if string(field) != "data" {
			return nil // a comment, or event, id and retry, which the data repeat
		}
		if has {
			data = append(data, '\n')
		}
		if len(data)+len(value) > maxLine {
			return malformed("an event of the answer is longer than %d bytes", maxLine)
		}
		data, has = append(data, bytes.TrimPrefix(value, []byte(" "))...), true
		return nil
	})
}

// decode reads one JSON text of an answer strictly: the same name twice is refused.
func decode(data []byte, into any) error {
	v, err := strictjson.Parse(data)
	if err == nil {
		err = v.Decode(into)
	}
	if err != nil {
		return malformed("a part of the answer is not the JSON of this API")
	}
	return nil
}

// answer gathers the parts of one answer.
type answer struct {
	text  func(string)
	parts []*part
	size  int
	calls int
	usage chat.Usage
	stop  chat.Stop
	whole bool // the provider has ended it
}

// part is a text, or the arguments of a call.
type part struct {
	call bool
	key  string // the provider's id of a call
	tool string
	b    strings.Builder
}

// add appends a part.
func (a *answer) add(p *part) (*part, error) {
	if p.call {
		if a.calls++; a.calls > maxCalls {
			return nil, malformed("the answer asks for more than %d calls", maxCalls)
		}
		if len(p.tool) > maxName {
			return nil, malformed("the answer names a tool in more than %d bytes", maxName)
		}
	}
	if len(a.parts) >= 2*maxCalls {
		return nil, malformed("the answer has more than %d parts", 2*maxCalls)
	}
	a.parts = append(a.parts, p)
	return p, nil
}

// grow appends to a part.
func (a *answer) grow(p *part, s string) error {
	if a.size += len(s); a.size > maxAnswer {
		return malformed("the answer is longer than %d bytes", maxAnswer)
	}
	p.b.WriteString(s)
	if !p.call && s != "" {
		a.text(s)
	}
	return nil
}

// say appends to the last text, or begins one.
func (a *answer) say(s string) error {
	if s == "" {
		return nil
	}
	if n := len(a.parts); n > 0 && !a.parts[n-1].call {
		return a.grow(a.parts[n-1], s)
	}
	p, err := a.add(&part{})
	if err != nil {
		return err
	}
	return a.grow(p, s)
}

// finish makes the reply. An answer without an end is malformed: its last call can be cut.
func (a *answer) finish() (chat.Reply, error) {
	if !a.whole || a.stop == "" {
		return chat.Reply{}, malformed("the answer ended before its end")
	}
	r := chat.Reply{Stop: a.stop, Usage: chat.Usage{Input: max(a.usage.Input, 0), Output: max(a.usage.Output, 0)}}
	calls := 0
	for _, p := range a.parts {
		switch text := p.b.String(); {
		case !p.call && strings.TrimSpace(text) != "":
			r.Blocks = append(r.Blocks, chat.Block{Text: text})
		case p.call && (a.stop == chat.End || a.stop == chat.Calls):
			if p.tool == "" {
				return chat.Reply{}, malformed("the answer asks for a call without a name")
			}
			r.Blocks = append(r.Blocks, chat.Block{Call: asked(p.tool, text)})
			calls++
		}
	}
	switch {
	case calls > 0:
		r.Stop = chat.Calls
	case a.stop == chat.Calls:
		return chat.Reply{}, malformed("the answer ends with calls, and has none")
	}
	return r, nil
}

// asked reads the arguments of a call: a JSON object. No text is an empty one.
func asked(tool, input string) *chat.Call {
	c := &chat.Call{Tool: tool, Input: []byte("{}")}
	if strings.TrimSpace(input) == "" {
		return c
	}
	v, err := strictjson.Parse([]byte(input))
	switch {
	case err != nil:
		c.Fault = "the arguments are not JSON: " + err.Error()
	case v.Kind() != '{':
		c.Fault = "the arguments are not a JSON object"
	default:
		c.Input = v.Raw()
	}
	return c
}
