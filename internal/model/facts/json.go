package facts

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendJSON appends the facts in the format of encoding/json. They are encoded twice for each call, for the log and
// for the host, and reflection took a tenth of a call's cost.
func (f Facts) AppendJSON(b []byte) []byte {
	w := writer{b: append(b, '{')}
	w.members(f)
	w.text("stdout", f.Stdout)
	w.text("stderr", f.Stderr)
	return append(w.b, '}')
}

// AppendMembers appends the members of the object but for stdout and stderr.
func (f Facts) AppendMembers(b []byte) []byte {
	w := writer{b: b, first: true}
	w.members(f)
	return w.b
}

// Brief is the form of facts for an agent host: a member that is absent in JSON is zero.
type Brief Facts

// AppendJSON appends the members that are not zero.
func (f Brief) AppendJSON(b []byte) []byte {
	w := writer{b: append(b, '{'), brief: true}
	w.members(Facts(f))
	w.text("stdout", f.Stdout)
	w.text("stderr", f.Stderr)
	return append(w.b, '}')
}

// MarshalJSON is AppendJSON for encoding/json.
func (f Brief) MarshalJSON() ([]byte, error) { return f.AppendJSON(nil), nil }

// writer appends members of an object. A brief one leaves out those that are zero.
type writer struct {
	b     []byte
	brief bool
	first bool // no comma before the next member, for any content of b
}

func (w *writer) members(f Facts) {
	w.text("call_id", f.CallID)
	w.text("decision_id", f.DecisionID)
	w.may("limit", (*string)(f.Limit))
	w.text("status", string(f.Status))
	if f.ExitCode != nil {
		w.b = strconv.AppendInt(w.name("exit_code"), int64(*f.ExitCode), 10) // zero says that a process ran
	} else {
		w.may("exit_code", nil)
	}
	w.may("signal", f.Signal)
	w.truth("timed_out", f.TimedOut)
	w.truth("oom_killed", f.OOMKilled)
	w.object("truncated", func() {
		w.truth("stdout", f.Truncated.Stdout)
		w.truth("stderr", f.Truncated.Stderr)
	})
	w.object("usage", func() {
		w.float("wall_ms", f.Usage.WallMS)
		w.float("cpu_ms", f.Usage.CPUMS)
		w.number("memory_peak_bytes", f.Usage.MemoryPeak)
		w.number("pids_peak", f.Usage.PidsPeak)
		w.number("output_bytes", f.Usage.OutputBytes)
		w.number("disk_bytes", f.Usage.DiskBytes)
	})
	w.object("limits", func() {
		w.number("wall_ms", f.Limits.WallMS)
		w.number("cpu_ms", f.Limits.CPUMS)
		w.number("memory_bytes", f.Limits.MemoryBytes)
		w.number("pids", f.Limits.Pids)
	})
	w.object("sandbox", func() {
		w.text("id", f.Sandbox.ID)
		w.text("driver", f.Sandbox.Driver)
		w.text("template", f.Sandbox.Template)
		w.truth("warm", f.Sandbox.Warm)
	})
	w.object("network", func() { w.network(f.Network) })
	w.object("files", func() {
		list(w, "read", f.Files.Read, (*writer).word)
		list(w, "written", f.Files.Written, (*writer).word)
		list(w, "artifacts", f.Files.Artifacts, (*writer).word)
		if f.Files.KeptIn != "" {
			w.text("kept_in", f.Files.KeptIn)
		}
		if f.Files.Partial {
			w.truth("partial", true)
		}
		if len(f.Files.Held) > 0 {
			list(w, "held", f.Files.Held, (*writer).word)
		}
		if c := f.Files.Changes; c != nil {
			w.object("changes", func() {
				w.text("id", c.ID)
				w.text("mode", c.Mode)
				list(w, "written", c.Written, (*writer).word)
				list(w, "renamed", c.Renamed, (*writer).word)
				list(w, "removed", c.Removed, (*writer).word)
				list(w, "protected", c.Protected, (*writer).word)
				w.truth("partial", c.Partial)
			})
		}
	})
	list(w, "denials", f.Denials, (*writer).denial)
	list(w, "denials_seen", f.Seen, (*writer).word)
	w.text("side_effect", f.SideEffect.String())
	if f.Cleaned != 0 {
		w.number("cleaned", int64(f.Cleaned))
	}
	if f.Masked != 0 {
		w.number("masked", int64(f.Masked))
	}
	list(w, "warnings", f.Warnings, (*writer).word)
	if len(f.Cut) > 0 {
		list(w, "cut", f.Cut, (*writer).word)
	}
}

func (w *writer) network(n Network) {
	w.text("policy", n.Policy)
	list(w, "allowed_hosts", n.AllowedHosts, (*writer).word)
	list(w, "contacted", n.Contacted, (*writer).word)
	list(w, "denied", n.Denied, (*writer).word)
	list(w, "attempts", n.Attempts, (*writer).attempt)
	if len(n.Packages) > 0 {
		list(w, "packages", n.Packages, (*writer).pack)
	}
}

func (w *writer) pack(p Package) {
	w.begin()
	w.text("manager", p.Manager)
	w.text("name", p.Name)
	w.text("version", p.Version)
	if p.Kept {
		w.truth("kept", true)
	}
	w.b = append(w.b, '}')
}

func (w *writer) attempt(a Attempt) {
	w.begin()
	w.text("host", a.Host)
	w.number("port", int64(a.Port))
	w.truth("allowed", a.Allowed)
	if a.Why != "" {
		w.text("why", a.Why)
	}
	if a.Method != "" {
		w.text("method", a.Method)
	}
	w.number("times", int64(a.Times))
	w.number("sent_bytes", a.Sent)
	w.number("received_bytes", a.Received)
	w.b = append(w.b, '}')
}

func (w *writer) denial(d Denial) {
	w.begin()
	w.text("kind", d.Kind)
	w.text("what", d.What)
	w.text("errno", d.Errno)
	w.b = append(w.b, '}')
}

func (w *writer) begin() { w.b = append(w.b, '{') }

// name begins a member.
func (w *writer) name(name string) []byte {
	if !w.first && w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.first = false
	return append(append(append(w.b, '"'), name...), '"', ':')
}

// text appends a string; bytes that are no UTF-8 become U+FFFD.
func (w *writer) text(name, s string) {
	if !w.brief || s != "" {
		w.b = w.name(name)
		w.word(s)
	}
}

func (w *writer) word(s string) { w.b, _ = jsontext.AppendQuote(w.b, s) }

// may appends a string or null.
func (w *writer) may(name string, s *string) {
	if s != nil {
		w.text(name, *s)
	} else if !w.brief {
		w.b = append(w.name(name), "null"...)
	}
}

func (w *writer) truth(name string, v bool) {
	if !w.brief || v {
		w.b = strconv.AppendBool(w.name(name), v)
	}
}

func (w *writer) number(name string, n int64) {
	if !w.brief || n != 0 {
		w.b = strconv.AppendInt(w.name(name), n, 10)
	}
}

func (w *writer) float(name string, n float64) {
	if !w.brief || n != 0 {
		w.b = strconv.AppendFloat(w.name(name), n, 'f', -1, 64)
	}
}

// object appends an object; a brief one leaves out an empty one.
func (w *writer) object(name string, members func()) {
	mark := len(w.b)
	w.b = append(w.name(name), '{')
	members()
	if w.brief && w.b[len(w.b)-1] == '{' {
		w.b = w.b[:mark]
		return
	}
	w.b = append(w.b, '}')
}

// list appends an array; a nil one is null.
func list[T any](w *writer, name string, l []T, each func(w *writer, v T)) {
	if w.brief && len(l) == 0 {
		return
	}
	w.b = w.name(name)
	if l == nil {
		w.b = append(w.b, "null"...)
		return
	}
	w.b = append(w.b, '[')
	for i, v := range l {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		each(w, v)
	}
	w.b = append(w.b, ']')
}
