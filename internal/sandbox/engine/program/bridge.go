package program

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
)

// frame is one line from waldo.
type frame []byte

// maxFrame bounds a line, in bytes, as waldo's end does.
const maxFrame = 16 << 20

// bridge is the program's end of the connection to waldo. A nil bridge is that of a program without tools.
type bridge struct {
	out     *os.File
	in      chan frame
	open    map[string]frame  // requests of the program that are not answered, by id
	waiting map[string]string // the approvals of those that wait for a human, by id
}

// other is descriptor 3 if it belongs to the Go runtime instead of a bridge: its collection would close it.
//
//lint:ignore U1000 the reference prevents collection
var other *os.File

// openBridge opens the bridge of a process; nil: it has none.
func openBridge(o Options) *bridge {
	handle := o.Bridge
	if handle == 0 && o.Life == 0 {
		handle = 3
	}
	if handle == 0 {
		return nil
	}
	f := os.NewFile(handle, "bridge")
	if f == nil {
		return nil
	}
	if o.Bridge == 0 {
		if st, err := f.Stat(); err != nil || st.Mode()&os.ModeSocket == 0 {
			other = f
			return nil
		}
	}
	b := &bridge{out: f, in: make(chan frame, 64), open: map[string]frame{}, waiting: map[string]string{}}
	go func() {
		defer close(b.in)
		lines := bufio.NewScanner(f)
		lines.Buffer(make([]byte, 64<<10), maxFrame)
		for lines.Scan() {
			b.in <- append(frame(nil), lines.Bytes()...)
		}
	}()
	return b
}

func (b *bridge) frames() <-chan frame {
	if b == nil {
		return nil
	}
	return b.in
}

// send sends a frame of the program's. A closed bridge is seen by the reader.
func (b *bridge) send(text []byte) {
	if b == nil {
		return
	}
	var m message
	if json.Unmarshal(text, &m) == nil && len(m.ID) > 0 && string(m.ID) != suspendID {
		b.open[string(m.ID)] = bytes.Clone(text)
	}
	_, _ = b.out.Write(text)
}

// message holds the members of a frame that concern the process itself.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ID       json.RawMessage `json:"id"`
		Approval string          `json:"approval_id"`
	} `json:"params"`
	Error json.RawMessage `json:"error"`
}

// note counts a frame, and reports whether it is for the process and not for the program.
func (b *bridge) note(f frame) (own bool) {
	var m message
	if json.Unmarshal(f, &m) != nil {
		return false
	}
	switch {
	case m.Method == "waldo/waiting":
		b.waiting[string(m.Params.ID)] = m.Params.Approval
		return true
	case m.Method != "":
		return true
	}
	delete(b.open, string(m.ID))
	delete(b.waiting, string(m.ID))
	return false
}

// idle reports whether every request of the program waits for a human.
func (b *bridge) idle() bool {
	return b != nil && len(b.waiting) > 0 && len(b.waiting) == len(b.open) && len(b.in) == 0
}
