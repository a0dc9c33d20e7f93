package facts

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendJSON appends the facts as encoding/json would write them. They are written twice for each call,
// for the log and for the host, and reflection took a tenth of what a call cost.
func (f Facts) AppendJSON(b []byte) []byte {
	b = f.AppendMembers(append(b, '{'))
	b = text(append(b, `,"stdout":`...), f.Stdout)
	b = text(append(b, `,"stderr":`...), f.Stderr)
	return append(b, '}')
}

// AppendMembers appends the members of the object but for stdout and stderr.
func (f Facts) AppendMembers(b []byte) []byte {
	b = text(append(b, `"call_id":`...), f.CallID)
	b = text(append(b, `,"decision_id":`...), f.DecisionID)
	b = may(append(b, `,"limit":`...), (*string)(f.Limit))
	b = text(append(b, `,"status":`...), string(f.Status))
	b = append(b, `,"exit_code":`...)
	if f.ExitCode == nil {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, int64(*f.ExitCode), 10)
	}
	b = may(append(b, `,"signal":`...), f.Signal)
	b = truth(b, `,"timed_out":`, f.TimedOut)
	b = truth(b, `,"oom_killed":`, f.OOMKilled)
	b = truth(b, `,"truncated":{"stdout":`, f.Truncated.Stdout)
	b = truth(b, `,"stderr":`, f.Truncated.Stderr)
	b = strconv.AppendFloat(append(b, `},"usage":{"wall_ms":`...), f.Usage.WallMS, 'f', -1, 64)
	b = strconv.AppendFloat(append(b, `,"cpu_ms":`...), f.Usage.CPUMS, 'f', -1, 64)
	b = number(b, `,"memory_peak_bytes":`, f.Usage.MemoryPeak)
	b = number(b, `,"pids_peak":`, f.Usage.PidsPeak)
	b = number(b, `,"output_bytes":`, f.Usage.OutputBytes)
	b = number(b, `,"disk_bytes":`, f.Usage.DiskBytes)
	b = number(b, `},"limits":{"wall_ms":`, f.Limits.WallMS)
	b = number(b, `,"cpu_ms":`, f.Limits.CPUMS)
	b = number(b, `,"memory_bytes":`, f.Limits.MemoryBytes)
	b = number(b, `,"pids":`, f.Limits.Pids)
	b = text(append(b, `},"sandbox":{"id":`...), f.Sandbox.ID)
	b = text(append(b, `,"driver":`...), f.Sandbox.Driver)
	b = text(append(b, `,"template":`...), f.Sandbox.Template)
	b = truth(b, `,"warm":`, f.Sandbox.Warm)
	b = f.Network.append(append(b, `},"network":`...))
	b = list(append(b, `,"files":{"read":`...), f.Files.Read, word)
	b = list(append(b, `,"written":`...), f.Files.Written, word)
	b = list(append(b, `,"artifacts":`...), f.Files.Artifacts, word)
	b = list(append(b, `},"denials":`...), f.Denials, Denial.append)
	b = list(append(b, `,"denials_seen":`...), f.Seen, word)
	b = text(append(b, `,"side_effect":`...), f.SideEffect.String())
	return list(append(b, `,"warnings":`...), f.Warnings, word)
}

func (n Network) append(b []byte) []byte {
	b = text(append(b, `{"policy":`...), n.Policy)
	b = list(append(b, `,"allowed_hosts":`...), n.AllowedHosts, word)
	b = list(append(b, `,"contacted":`...), n.Contacted, word)
	b = list(append(b, `,"denied":`...), n.Denied, word)
	b = list(append(b, `,"attempts":`...), n.Attempts, Attempt.append)
	if len(n.Packages) > 0 {
		b = list(append(b, `,"packages":`...), n.Packages, Package.append)
	}
	return append(b, '}')
}

func (p Package) append(b []byte) []byte {
	b = text(append(b, `{"manager":`...), p.Manager)
	b = text(append(b, `,"name":`...), p.Name)
	b = text(append(b, `,"version":`...), p.Version)
	if p.Kept {
		b = append(b, `,"kept":true`...)
	}
	return append(b, '}')
}

func (a Attempt) append(b []byte) []byte {
	b = text(append(b, `{"host":`...), a.Host)
	b = number(b, `,"port":`, int64(a.Port))
	b = truth(b, `,"allowed":`, a.Allowed)
	if a.Why != "" {
		b = text(append(b, `,"why":`...), a.Why)
	}
	b = number(b, `,"times":`, int64(a.Times))
	b = number(b, `,"sent_bytes":`, a.Sent)
	b = number(b, `,"received_bytes":`, a.Received)
	return append(b, '}')
}

func (d Denial) append(b []byte) []byte {
	b = text(append(b, `{"kind":`...), d.Kind)
	b = text(append(b, `,"what":`...), d.What)
	b = text(append(b, `,"errno":`...), d.Errno)
	return append(b, '}')
}

// text appends a string; bytes that are no UTF-8 become U+FFFD.
func text(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

func word(s string, b []byte) []byte { return text(b, s) }

// may appends a string or null.
func may(b []byte, s *string) []byte {
	if s == nil {
		return append(b, "null"...)
	}
	return text(b, *s)
}

func truth(b []byte, name string, v bool) []byte {
	return strconv.AppendBool(append(b, name...), v)
}

func number(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), n, 10)
}

// list appends an array; a nil one is null.
func list[T any](b []byte, l []T, each func(v T, b []byte) []byte) []byte {
	if l == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, v := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = each(v, b)
	}
	return append(b, ']')
}
