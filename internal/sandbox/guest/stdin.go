package guest

import (
	"io"
	"strings"
)

// Stdin returns an interpreter's input: its head, the job, and the script's own input. With own nil, all of it
// is in memory, which a driver can see by its length.
func Stdin(first string, job *strings.Reader, own io.Reader) io.Reader {
	in := &input{begins: first, first: strings.NewReader(first), job: job}
	if own != nil {
		return followed{in, own}
	}
	return whole{in}
}

// input is the head of an interpreter's input, and its job.
type input struct {
	begins     string
	first, job *strings.Reader
}

// Read satisfies io.Reader.
func (i *input) Read(b []byte) (int, error) {
	if i.first.Len() > 0 {
		return i.first.Read(b)
	}
	return i.job.Read(b)
}

// Skip satisfies sandbox.Begun. To compare a string with itself takes no time, and heads are made once.
func (i *input) Skip(head string) bool {
	if i.first.Len() != len(i.begins) || i.begins != head {
		return false
	}
	i.first.Reset("")
	return true
}

// whole is an input that is there at once.
type whole struct{ *input }

// Len returns how many bytes are left.
func (w whole) Len() int { return w.first.Len() + w.job.Len() }

// WriteTo satisfies io.WriterTo.
func (w whole) WriteTo(to io.Writer) (int64, error) {
	n, err := w.first.WriteTo(to)
	if err != nil {
		return n, err
	}
	m, err := w.job.WriteTo(to)
	return n + m, err
}

// followed is an input with another behind it.
type followed struct {
	*input
	own io.Reader
}

// Read satisfies io.Reader.
func (f followed) Read(b []byte) (int, error) {
	if n, err := f.input.Read(b); err != io.EOF {
		return n, err
	}
	return f.own.Read(b)
}
