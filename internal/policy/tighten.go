package policy

import (
	"waldo/internal/call"
	"waldo/internal/wire"
)

// Tighten weighs what a server says of its own tool (MCP tool annotations). It is never believed
// where it says that the tool is harmless. A tool that calls itself destructive is danger 3 and
// asked for, unless the contract has that danger already; one that says it is not read-only is at
// least danger 2. Annotations that cannot be read change nothing.
func Tighten(d Decision, annotations wire.Value) Decision {
	var hints struct {
		Destructive *bool `json:"destructiveHint"`
		ReadOnly    *bool `json:"readOnlyHint"`
	}
	if annotations.IsZero() || annotations.Kind() != '{' || annotations.Decode(&hints) != nil {
		return d
	}
	at := d.Contract.At
	switch {
	case hints.Destructive != nil && *hints.Destructive && d.Danger < 3:
		d.Danger = 3
		why := reasonAt("annotation.destructive", "the server says that this tool destroys", at)
		if d.Effect == Allow {
			d.Effect = Ask
			d.Reasons = append([]call.Reason{why}, d.Reasons...)
		} else {
			d.Reasons = append(d.Reasons[:len(d.Reasons):len(d.Reasons)], why)
		}
	case hints.ReadOnly != nil && !*hints.ReadOnly && d.Danger < 2:
		d.Danger = 2
		d.Reasons = append(d.Reasons[:len(d.Reasons):len(d.Reasons)], reasonAt("annotation.write", "the server says that this tool changes things", at))
	}
	return d
}
