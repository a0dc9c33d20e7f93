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

// takeQuote removes the argument from a call and returns its text. It keeps the argument of a tool that declares one
// of this name. Text that is not an id is returned as written: the pipeline refuses it as unknown. An empty text would
// let another yes apply.
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

// quoteInside returns the inner arguments of call_tool. It adds an id that stands beside them, unless they hold one.
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
