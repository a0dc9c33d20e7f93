package policy

import (
	"strings"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
)

// Tighten weighs a server's annotations of its own tool (MCP tool annotations). A claim of harmlessness is ignored. A
// tool annotated as destructive gets danger 3 and is asked about, unless the contract has that danger or a condition,
// which then decides. A tool annotated as not read-only gets at least danger 2. A call of either is a write,
// regardless of the contract. A read allowed by a pattern alone is asked once. Unreadable annotations are ignored.
func Tighten(d Decision, annotations strictjson.Value) Decision {
	var hints struct {
		Destructive *bool `json:"destructiveHint"`
		ReadOnly    *bool `json:"readOnlyHint"`
	}
	known := !annotations.IsZero() && annotations.Kind() == '{' && annotations.Decode(&hints) == nil
	d.Once = strings.Contains(d.Contract.Pattern, "*") && (!known || hints.ReadOnly == nil || !*hints.ReadOnly)
	if !known {
		return d
	}
	at := d.Contract.At
	d.Writes = hints.Destructive != nil && *hints.Destructive || hints.ReadOnly != nil && !*hints.ReadOnly
	switch {
	case hints.Destructive != nil && *hints.Destructive && d.Danger < 3:
		d.Danger = 3
		why := reasonAt("annotation.destructive", "the server marks this tool destructive", at)
		if d.Effect == Allow && d.Contract.Approval.When != contract.If {
			d.Effect = Ask
			d.Reasons = append([]call.Reason{why}, d.Reasons...)
		} else {
			d.Reasons = append(d.Reasons[:len(d.Reasons):len(d.Reasons)], why)
		}
	case hints.ReadOnly != nil && !*hints.ReadOnly && d.Danger < 2:
		d.Danger = 2
		d.Reasons = append(d.Reasons[:len(d.Reasons):len(d.Reasons)],
			reasonAt("annotation.write", "the server marks this tool as not read-only", at))
	}
	return d
}
