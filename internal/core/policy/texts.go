package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"waldo/internal/detect"
)

// ofTexts are the functions over every text of a value, at any depth: they suit a rule for all capabilities, which
// cannot know the names of arguments. says gets its binding from saysOnce.
func ofTexts() []cel.EnvOption {
	dyn := cel.DynType
	return []cel.EnvOption{
		cel.Function("says", cel.Overload("says", []*cel.Type{dyn, cel.StringType}, cel.BoolType)),
		cel.Function("secrets", cel.Overload("secrets", []*cel.Type{dyn}, cel.BoolType, cel.UnaryBinding(
			overTexts(func(text string) ref.Val { return types.Bool(detect.Secret(text)) })))),
		cel.Function("length", cel.Overload("length", []*cel.Type{dyn}, cel.IntType, cel.UnaryBinding(
			overTexts(func(text string) ref.Val { return types.Int(len(text)) })))),
	}
}

// saysOnce makes says of a call whose regular expression is compiled once, with the program.
var saysOnce = cel.OptimizeRegex(&interpreter.RegexOptimization{Function: "says", RegexIndex: 1,
	Factory: func(c interpreter.InterpretableCall, regex string) (interpreter.InterpretableCall, error) {
		re, err := types.CompileRegexWithLimit(regex, maxRegex)
		if err != nil {
			return nil, err
		}
		says := overTexts(func(text string) ref.Val { return types.Bool(re.MatchString(text)) })
		return interpreter.NewCall(c.ID(), c.Function(), c.OverloadID(), c.Args(), func(v ...ref.Val) ref.Val {
			return says(v[0])
		}), nil
	}})

// literal refuses says with a regular expression that is not written out: only such a one is compiled in advance.
func literal(tree *ast.AST) (err error) {
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		if x.Kind() != ast.CallKind || x.AsCall().FunctionName() != "says" || len(x.AsCall().Args()) != 2 {
			return
		}
		if regex := x.AsCall().Args()[1]; regex.Kind() != ast.LiteralKind {
			at := tree.SourceInfo().GetStartLocation(regex.ID())
			err = fmt.Errorf("at character %d: the regular expression of says must be a literal, as in r'\\bgit\\b'", at.Column()+1)
		}
	}))
	return err
}

func overTexts(f func(string) ref.Val) func(ref.Val) ref.Val {
	return func(v ref.Val) ref.Val {
		var b strings.Builder
		if unknown := gather(&b, v, "\n"); unknown != nil {
			return unknown
		}
		return f(b.String())
	}
}

// gather writes the texts of a value, each with end behind it: of an object its names too, in their order. It returns
// the first value that is unknown.
func gather(b *strings.Builder, v ref.Val, end string) ref.Val {
	switch v := v.(type) {
	case *types.Unknown:
		return v
	case types.String:
		b.WriteString(string(v))
		b.WriteString(end)
	case traits.Mapper:
		var names []ref.Val
		for it := v.Iterator(); it.HasNext() == types.True; {
			names = append(names, it.Next())
		}
		slices.SortFunc(names, func(a, b ref.Val) int { return cmp.Compare(fmt.Sprint(a.Value()), fmt.Sprint(b.Value())) })
		for _, name := range names {
			if unknown := cmp.Or(gather(b, name, "\n"), gather(b, v.Get(name), "\n")); unknown != nil {
				return unknown
			}
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if unknown := gather(b, it.Next(), " "); unknown != nil {
				return unknown
			}
		}
		b.WriteString("\n")
	}
	return nil
}
