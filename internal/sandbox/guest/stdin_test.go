package guest

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"waldo/internal/sandbox"
)

// TestStdin: an input is the head, the job and the script's own input. Skip skips an equal head if no byte was
// read before. It leaves the rest unchanged.
func TestStdin(t *testing.T) {
	for _, own := range []string{"", "own"} {
		fresh := func(job *strings.Reader) io.Reader {
			if own == "" {
				return Stdin("head", job, nil)
			}
			return Stdin("head", job, strings.NewReader(own))
		}
		read := func(r io.Reader) string {
			b, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		job := func() *strings.Reader { return strings.NewReader("job") }
		if got := read(fresh(job())); got != "headjob"+own {
			t.Errorf("control: %q", got)
		}
		in := fresh(job())
		for _, other := range []string{"", "hea", "herd", "headj"} {
			if in.(sandbox.Prestarted).Skip(other) {
				t.Errorf("skipped %q", other)
			}
		}
		if !in.(sandbox.Prestarted).Skip("head") || in.(sandbox.Prestarted).Skip("head") {
			t.Error("the head is not skipped once")
		}
		if got := read(in); got != "job"+own {
			t.Errorf("behind the head: %q", got)
		}
		in = fresh(job())
		if _, err := io.ReadFull(in, make([]byte, 1)); err != nil || in.(sandbox.Prestarted).Skip("head") {
			t.Error("skipped what was begun", err)
		}
		if got := read(in); got != "eadjob"+own {
			t.Errorf("after a byte: %q", got)
		}
		whole, is := fresh(job()).(interface {
			io.WriterTo
			Len() int
		})
		if is != (own == "") {
			t.Errorf("there at once: %v", is)
		}
		if !is {
			continue
		}
		var to bytes.Buffer
		if n := whole.Len(); n != 7 {
			t.Errorf("%d bytes", n)
		}
		if n, err := whole.WriteTo(&to); n != 7 || err != nil || to.String() != "headjob" || whole.Len() != 0 {
			t.Errorf("%d %v %q, %d left", n, err, to.String(), whole.Len())
		}
	}
}
