package mcpserver

import (
	"maps"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/protocol/strictjson"
)

// quoteArg is the argument in which an agent can quote the id of an approval: a model cannot write _meta.
const quoteArg = "waldo_approval"

// takeQuote takes the argument out of a call, before anything judges its arguments, and returns what it says. The
// argument of a tool that declares one of this name is the tool's own.
//
// What is no id is returned as it was written, never as nothing: the pipeline then refuses it as unknown. As nothing,
// another yes could stand in for it.
func takeQuote(c *call.Call, t call.Tool) string {
	members, _ := c.Args.Value().Members()
	quoted, ok := members[quoteArg]
	input, _ := t.Input.Members()
	own, _ := input["properties"].Members()
	if _, has := own[quoteArg]; has || !ok {
		return ""
	}
	rest := maps.Clone(members)
	delete(rest, quoteArg)
	args, err := call.ArgsOf(rest)
	if err != nil {
		return "" // the argument stays, so it is another call
	}
	c.Args = args
	if text, ok := quoted.Text(); ok && id.Is(id.Approval, text) {
		return text
	}
	return contract.Cut(string(quoted.Raw()), 40)
}

// quoteInside returns the arguments inside those of call_tool. An id beside them goes in, unless they hold one.
func quoteInside(outer map[string]strictjson.Value) strictjson.Value {
	inner := outer["arguments"]
	quoted, beside := outer[quoteArg]
	args, err := call.ReadArgs(inner)
	members, _ := args.Value().Members()
	if _, inside := members[quoteArg]; inside || !beside || err != nil {
		return inner
	}
	all := map[string]strictjson.Value{quoteArg: quoted}
	maps.Copy(all, members)
	if args, err = call.ArgsOf(all); err != nil {
		return inner // as without the id
	}
	return args.Value()
}
