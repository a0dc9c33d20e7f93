package policy

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"google.golang.org/protobuf/types/known/structpb"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
)

// afterwards is the language of settle and rollback, which read a call and a result.
var afterwards = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(append(language(), cel.Variable("result", cel.DynType), cel.Variable("text", cel.StringType),
		cel.Variable("began", cel.TimestampType))...)
})

// compileAfter compiles an expression of settle or rollback. A panic of the library is an error of the expression.
func compileAfter(source string, want *cel.Type) (c *condition, err error) {
	defer func() {
		if r := recover(); r != nil {
			c, err = nil, fmt.Errorf("CEL cannot compile it: %v", r)
		}
	}()
	env, err := afterwards()
	if err != nil {
		return nil, fmt.Errorf("CEL: %w", err)
	}
	return compileIn(env, source, want)
}

// inputs returns the variables of settle and rollback. The result is the structured content, else the text read as
// JSON, else null. began is the second in which the call began, by waldo's clock.
func inputs(args call.Args, began time.Time, r *call.Result) map[string]any {
	in := map[string]any{"args": exactly(args.Value()), "result": nil, "text": "", "began": began.UTC().Truncate(time.Second)}
	if args.Value().IsZero() {
		in["args"] = map[string]any{}
	}
	if r == nil {
		return in
	}
	var text []string
	for _, c := range r.Content {
		if c.Type == "text" {
			text = append(text, c.Text)
		}
	}
	in["text"] = strings.Join(text, "\n")
	if !r.Structured.IsZero() {
		in["result"] = exactly(r.Structured)
	} else if v, err := strictjson.Parse([]byte(strings.Join(text, ""))); err == nil {
		in["result"] = exactly(v)
	}
	return in
}

// Happened evaluates the expression of a settlement over the arguments of the write and the result of the read. An
// error means that the outcome is still unknown.
func Happened(s contract.Settle, args call.Args, began time.Time, r call.Result) (bool, error) {
	c, err := compileAfter(s.Happened, cel.BoolType)
	if err != nil {
		return false, err
	}
	out, _, err := c.program.Eval(inputs(args, began, &r))
	if err != nil {
		return false, err
	}
	yes, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("it yielded %s, not true or false", out.Type().TypeName())
	}
	return bool(yes), nil
}

// Fill makes the arguments of a settlement or rollback from its template, the arguments of the call and its result;
// nil: there is no result yet.
func Fill(template map[string]any, args call.Args, began time.Time, r *call.Result) (call.Args, error) {
	filled, err := fill(template, inputs(args, began, r))
	if err != nil {
		return call.Args{}, err
	}
	return call.ArgsOf(filled)
}

func fill(v any, in map[string]any) (any, error) {
	switch v := v.(type) {
	case nil:
		return map[string]any{}, nil
	case string:
		c, err := compileAfter(v, nil)
		if err != nil {
			return nil, err
		}
		out, _, err := c.program.Eval(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v, err)
		}
		native, err := out.ConvertToNative(reflect.TypeFor[*structpb.Value]())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v, err)
		}
		value, ok := native.(*structpb.Value)
		if !ok || value.AsInterface() == nil {
			return nil, fmt.Errorf("%s: it yielded nothing", v)
		}
		return value.AsInterface(), nil
	case map[string]any:
		out := map[string]any{}
		for name, part := range v {
			made, err := fill(part, in)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			out[name] = made
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, part := range v {
			made, err := fill(part, in)
			if err != nil {
				return nil, err
			}
			out[i] = made
		}
		return out, nil
	}
	return v, nil
}

// expressions returns the texts of a template in order of their names.
func expressions(v any) (all []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			all = append(all, expressions(v[name])...)
		}
	case []any:
		for _, part := range v {
			all = append(all, expressions(part)...)
		}
	}
	return all
}

// after checks the settlements and rollbacks of all contracts: they are CEL, and a settlement reads.
func (p *Policy) after() (problems contract.Problems) {
	for _, c := range p.cfg.Contracts {
		add := func(at contract.Position, code, hint string, err error) {
			if err != nil {
				problems = append(problems, contract.Problem{At: at, Code: code, Text: err.Error(), Hint: hint})
			}
		}
		if s := c.Settle; s.By != "" {
			_, err := compileAfter(s.Happened, cel.BoolType)
			add(s.At, "settle.invalid", "happened is a CEL expression over args, result, text and began", err)
			for _, x := range expressions(s.Args) {
				_, err := compileAfter(x, nil)
				add(s.At, "settle.invalid", "a text in args is a CEL expression over args and began", err)
			}
			if k, ok := p.Lookup(call.Capability(s.By)); !ok || k.Denied || k.Mode != contract.Read || s.By == c.Pattern {
				add(s.At, "settle.write", "give "+s.By+" a contract with mode: read",
					errors.New("settle.by must be a capability that reads"))
			}
		}
		if r := c.Rollback; r.By != "" {
			for _, x := range expressions(r.Args) {
				_, err := compileAfter(x, nil)
				add(r.At, "rollback.invalid", "a text in args is a CEL expression over args, result, text and began", err)
			}
			if k, ok := p.Lookup(call.Capability(r.By)); !ok || k.Denied {
				add(r.At, "rollback.absent", "write a contract for "+r.By, errors.New("no contract allows rollback.by"))
			}
		}
	}
	return problems
}
