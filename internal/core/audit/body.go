package audit

import (
	"strconv"

	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
)

// The bodies of the two records that every call has are written without reflection, as encoding/json
// would write them.

func (d Decided) append(b []byte) []byte {
	b = strictjson.AppendText(append(b, `{"decision_id":`...), d.DecisionID)
	b = strictjson.AppendText(append(b, `,"call_id":`...), d.CallID)
	b = strictjson.AppendText(append(b, `,"effect":`...), d.Effect.String())
	b = call.Reasons(d.Reasons).AppendJSON(append(b, `,"reasons":`...))
	b = strictjson.AppendText(append(b, `,"capability":`...), d.Capability)
	b = may(b, `,"category":`, d.Category)
	b = strictjson.AppendText(append(b, `,"principal":`...), d.Principal)
	b = strictjson.AppendText(append(b, `,"session":`...), d.Session)
	b = may(b, `,"workspace":`, d.Workspace)
	b = strictjson.AppendText(append(b, `,"channel":`...), d.Channel)
	b = may(b, `,"agent":`, d.Agent)
	b = may(b, `,"asker":`, d.Asker)
	b = may(b, `,"process":`, d.Process)
	b = may(b, `,"folder":`, d.Folder)
	b = may(b, `,"parent":`, d.Parent)
	if d.Depth != 0 {
		b = strconv.AppendInt(append(b, `,"depth":`...), int64(d.Depth), 10)
	}
	if len(d.Delegation) > 0 {
		b = texts(append(b, `,"delegation":`...), d.Delegation)
	}
	b = may(b, `,"narrowest":`, d.Narrowest)
	b = strictjson.AppendText(append(b, `,"mode":`...), d.Mode.String())
	b = strconv.AppendInt(append(b, `,"danger":`...), int64(d.Danger), 10)
	b = may(b, `,"policy":`, d.Policy)
	b = append(b, `,"contract":`...)
	if c := d.Contract; c == nil {
		b = append(b, "null"...)
	} else {
		b = strictjson.AppendText(append(b, `{"pattern":`...), c.Pattern)
		b = strictjson.AppendText(append(b, `,"transport":`...), string(c.Transport))
		b = may(b, `,"file":`, c.File)
		if c.Line != 0 {
			b = strconv.AppendInt(append(b, `,"line":`...), int64(c.Line), 10)
		}
		b = append(b, '}')
	}
	b = strictjson.AppendText(append(b, `,"args_digest":`...), d.ArgsDigest)
	b = append(b, `,"args":`...)
	if d.Args == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, plain(d.Args)...)
	}
	if d.Redacted {
		b = append(b, `,"args_redacted":true`...)
	}
	if d.ArgsSize != nil {
		b = d.ArgsSize.append(append(b, `,"args_size":`...))
	}
	b = may(b, `,"tool_digest":`, d.ToolDigest)
	if len(d.Run) > 0 {
		b = append(append(b, `,"run":`...), plain(d.Run)...)
	}
	b = may(b, `,"run_digest":`, d.RunDigest)
	b = may(b, `,"approval_quoted":`, d.Quoted)
	if d.DryRun {
		b = append(b, `,"dry_run":true`...)
	}
	if len(d.Secrets) > 0 {
		b = texts(append(b, `,"secrets":`...), d.Secrets)
	}
	return append(b, '}')
}

func (e Ended) append(b []byte) []byte {
	b = strictjson.AppendText(append(b, `{"decision_id":`...), e.DecisionID)
	b = strictjson.AppendText(append(b, `,"call_id":`...), e.CallID)
	b = strictjson.AppendText(append(b, `,"capability":`...), e.Capability)
	b = strictjson.AppendText(append(b, `,"status":`...), string(e.Status))
	b = strconv.AppendBool(append(b, `,"is_error":`...), e.IsError)
	if e.OfTool {
		b = append(b, `,"of_tool":true`...)
	}
	b = strictjson.AppendText(append(b, `,"trust":`...), e.Trust.String())
	if len(e.Why) > 0 {
		b = call.Reasons(e.Why).AppendJSON(append(b, `,"why":`...))
	}
	b = may(b, `,"approval_id":`, e.ApprovalID)
	b = may(b, `,"replay_of":`, e.ReplayOf)
	b = may(b, `,"undo_by":`, e.UndoBy)
	b = strictjson.AppendText(append(b, `,"row":`...), e.Row)
	b = may(b, `,"row_key":`, e.RowKey)
	b = e.Result.append(append(b, `,"result":`...))
	b = e.Facts.AppendMembers(append(b, `,"facts":{`...))
	b = e.Facts.Stdout.append(append(b, `,"stdout":`...))
	b = e.Facts.Stderr.append(append(b, `,"stderr":`...))
	return append(b, "}}"...)
}

func (s Sized) append(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"bytes":`...), int64(s.Bytes), 10)
	return append(strictjson.AppendText(append(b, `,"sha256":`...), s.SHA256), '}')
}

// may appends a member where it says something.
func may(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	return strictjson.AppendText(append(b, name...), s)
}

func texts(b []byte, l []string) []byte {
	b = append(b, '[')
	for i, s := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = strictjson.AppendText(b, s)
	}
	return append(b, ']')
}
