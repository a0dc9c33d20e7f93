package policy

import (
	"fmt"
	"math"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"waldo/internal/detect/pattern"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
)

// The cost limits of one condition.
const (
	maxSource = 2_000  // characters
	maxCost   = 50_000 // of CEL's own units for one evaluation, about one for each step
	maxRegex  = 1_000  // instructions of a compiled regular expression
)

// condition is a compiled CEL expression that yields true or false.
type condition struct {
	program cel.Program
	args    bool // it names the arguments
}

// Replacements of ==, != and in. CEL calls values of two types unequal, so ["high"] would slip past args.priority ==
// 'high'. These return an error for them, and a condition with an error fails closed.
const (
	same   = "@same"
	within = "@within"
)

// environment is made once, and only where a contract has a condition: it takes milliseconds.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	text := cel.StringType
	return cel.NewEnv(append(language(),
		cel.Variable("capability", text),
		cel.Variable("principal", text),
		cel.Variable("session", text),
		cel.Variable("channel", text),
		cel.Variable("environment", text),
		cel.Variable("danger", cel.IntType),
		cel.Variable("depth", cel.IntType),
	)...)
})

// language is what every expression of a configuration can use: the arguments, and CEL within bounds.
func language() []cel.EnvOption {
	text, boolean, dyn := cel.StringType, cel.BoolType, cel.DynType
	return append(ofTexts(),
		cel.Variable("args", cel.MapType(text, dyn)),
		cel.ClearMacros(),
		cel.Macros(cel.HasMacro, cel.AllMacro, cel.ExistsMacro, cel.ExistsOneMacro),
		cel.ParserRecursionLimit(32),
		cel.ParserExpressionSizeLimit(maxSource),
		cel.RegexProgramSizeLimit(maxRegex),
		cel.Function(same, cel.Overload("same", []*cel.Type{dyn, dyn}, boolean, cel.BinaryBinding(equal))),
		cel.Function(within, cel.Overload("within", []*cel.Type{dyn, dyn}, boolean, cel.BinaryBinding(contains))),
		cel.Function("trim", cel.MemberOverload("text_trim", []*cel.Type{text}, text,
			cel.UnaryBinding(onText(strings.TrimSpace)))),
		cel.Function("lowerAscii", cel.MemberOverload("text_lower", []*cel.Type{text}, text,
			cel.UnaryBinding(onText(lowerASCII)))),
	)
}

// compile compiles a condition. It refuses text that is not CEL, results other than bool, unknown names, and macros
// other than has, all, exists and exists_one. A panic of the library is an error of the condition.
func compile(when contract.Condition) (c *condition, err error) {
	defer func() {
		if r := recover(); r != nil {
			c, err = nil, fmt.Errorf("CEL cannot compile it: %v", r)
		}
	}()
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("CEL: %w", err)
	}
	return compileIn(env, when.Source, cel.BoolType)
}

// compileIn compiles an expression. want is the type that it must yield; nil: any.
func compileIn(env *cel.Env, source string, want *cel.Type) (*condition, error) {
	parsed, issues := env.Parse(source)
	if issues.Err() != nil {
		return nil, brief(issues)
	}
	if err := rounded(parsed.NativeRep(), source); err != nil {
		return nil, err
	}
	if err := literal(parsed.NativeRep()); err != nil {
		return nil, err
	}
	c := &condition{}
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		c.args = c.args || x.Kind() == ast.IdentKind && x.AsIdent() == "args"
	}))
	strict(parsed.NativeRep().Expr())
	checked, issues := env.Check(parsed)
	if issues.Err() != nil {
		return nil, brief(issues)
	}
	if want != nil && checked.OutputType() != want {
		return nil, fmt.Errorf("it yields %s, not true or false", checked.OutputType())
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost), saysOnce)
	if err != nil {
		return nil, fmt.Errorf("%s", firstLine(err.Error()))
	}
	c.program = program
	return c, nil
}

// brief is the first of CEL's complaints, with its place in the expression.
func brief(issues *cel.Issues) error {
	for _, e := range issues.Errors() {
		text := strings.NewReplacer("@same", "==", "@within", "in").Replace(firstLine(e.Message))
		return fmt.Errorf("at character %d: %s", e.Location.Column()+1, text)
	}
	return issues.Err()
}

func firstLine(s string) string { line, _, _ := strings.Cut(s, "\n"); return line }

// strict puts same and within in the place of ==, != and in, throughout an expression.
func strict(e ast.Expr) {
	fac := ast.NewExprFactory()
	next := ast.MaxID(ast.NewAST(e, nil)) + 1
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(x ast.Expr) {
		if x.Kind() != ast.CallKind {
			return
		}
		c := x.AsCall()
		switch c.FunctionName() {
		case operators.Equals:
			x.SetKindCase(fac.NewCall(x.ID(), same, c.Args()...))
		case operators.NotEquals:
			x.SetKindCase(fac.NewCall(x.ID(), operators.LogicalNot, fac.NewCall(next, same, c.Args()...)))
			next++
		case operators.In, operators.OldIn:
			x.SetKindCase(fac.NewCall(x.ID(), within, c.Args()...))
		}
	}))
}

var number = pattern.Lazy(`^-?[0-9]*(\.[0-9]+)?([eE][+-]?[0-9]+)?`)

// rounded refuses a number in a condition that a double would change: arguments are compared as doubles.
func rounded(tree *ast.AST, source string) (err error) {
	text := []rune(source)
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		if x.Kind() != ast.LiteralKind || class(x.AsLiteral()) != types.DoubleType {
			return
		}
		at, ok := tree.SourceInfo().GetOffsetRange(x.ID())
		if !ok || int(at.Start) >= len(text) {
			return
		}
		digits := strings.Replace(number().FindString(string(text[at.Start:])), "-.", "-0.", 1)
		if strings.HasPrefix(digits, ".") {
			digits = "0" + digits
		}
		if v, perr := strictjson.Parse([]byte(digits)); perr == nil && !v.Exact() {
			err = fmt.Errorf("at character %d: a double does not hold %s exactly", at.Start+1, digits)
		}
	}))
	return err
}

// class is the class of a value for comparisons: all numbers are one class.
func class(v ref.Val) ref.Type {
	switch v.Type() {
	case types.IntType, types.UintType:
		return types.DoubleType
	}
	return v.Type()
}

// equal compares two values of one class, or anything with null. Whole numbers from 2^53 on are ambiguous in decoded
// JSON, so they give an error.
func equal(a, b ref.Val) ref.Val {
	if a == types.NullValue || b == types.NullValue {
		return types.Bool(a == b)
	}
	for _, v := range []ref.Val{a, b} {
		if u := unknownIn(v); u != nil {
			return u
		}
	}
	if class(a) != class(b) {
		return types.NewErr("%s and %s cannot be compared", a.Type().TypeName(), b.Type().TypeName())
	}
	if vague(a) || vague(b) {
		return types.NewErr("a number from 2^53 on cannot be compared exactly")
	}
	return types.Equal(a, b)
}

// inexact is a number of the arguments that a double would change. CEL has no operator for it, so a condition over it
// gives an error.
type inexact struct{}

// exactly returns the arguments as CEL reads them, with inexact for each number that a double would change.
func exactly(v strictjson.Value) any {
	if m, ok := v.Members(); ok {
		out := make(map[string]any, len(m))
		for name, member := range m {
			out[name] = exactly(member)
		}
		return out
	}
	if all, ok := v.Elements(); ok {
		out := make([]any, len(all))
		for i, element := range all {
			out[i] = exactly(element)
		}
		return out
	}
	var out any
	if v.Kind() == '0' && !v.Exact() || v.Decode(&out) != nil {
		return inexact{}
	}
	return out
}

func vague(v ref.Val) bool {
	d, ok := v.(types.Double)
	return ok && math.Abs(float64(d)) >= 1<<53
}

// contains looks for an element in a list or a key in a map. It cannot tell where a list has
// nothing of the element's class.
func contains(elem, in ref.Val) ref.Val {
	switch c := in.(type) {
	case traits.Mapper:
		if _, ok := elem.(types.String); !ok {
			return types.NewErr("a key is text, not %s", elem.Type().TypeName())
		}
		_, found := c.Find(elem)
		return types.Bool(found)
	case traits.Lister:
		comparable, any := false, false
		for it := c.Iterator(); it.HasNext() == types.True; {
			v := it.Next()
			any = true
			if class(v) != class(elem) {
				continue
			}
			comparable = true
			switch r := equal(elem, v); {
			case types.IsError(r):
				return r
			case r == types.True:
				return types.True
			}
		}
		if any && !comparable {
			return types.NewErr("%s cannot be found in this list", elem.Type().TypeName())
		}
		return types.False
	}
	return types.NewErr("%s holds nothing", in.Type().TypeName())
}

func onText(f func(string) string) func(ref.Val) ref.Val {
	return func(v ref.Val) ref.Val {
		s, ok := v.(types.String)
		if !ok {
			return types.NewErr("%s is not text", v.Type().TypeName())
		}
		return types.String(f(string(s)))
	}
}

func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// holds evaluates the condition. It returns an error if the result is undefined: a missing key, values that cannot be
// compared, or a cost beyond the limit. For a call without arguments it reports whether the condition holds for all
// arguments.
func (c *condition) holds(v *variables) (bool, error) {
	out, _, err := c.program.Eval(v)
	if v.open { // true for all values of the rest, or not
		return err == nil && out == types.True, nil
	}
	if err != nil {
		return false, err
	}
	b, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("it yielded %s", out.Type().TypeName())
	}
	return bool(b), nil
}

// variables is the condition's view of a call.
type variables struct {
	call        *call.Call
	environment string
	danger      int
	open        bool // args, session and depth are unknown, as is a capability with a '*'

	hidden func(string) bool // the texts of the arguments that are unknown; nil: none
}

// ResolveName returns a variable by its name.
func (v *variables) ResolveName(name string) (any, bool) {
	if v.open && (name == "args" || name == "session" || name == "depth" ||
		name == "capability" && strings.Contains(string(v.call.Capability), "*")) {
		return types.NewUnknown(1, nil), true
	}
	switch name {
	case "args":
		if v.hidden != nil {
			args, _ := veil(exactly(v.call.Args.Value()), nil, v.hidden)
			return args, true
		}
		if a := v.call.Args.Value(); !a.IsZero() && !a.Exact() {
			return exactly(a), true
		}
		if a := v.call.Args.Values(); a != nil {
			return a, true
		}
		return map[string]any{}, true
	case "capability":
		return string(v.call.Capability), true
	case "principal":
		return string(v.call.Principal), true
	case "session":
		return string(v.call.Session), true
	case "channel":
		return v.call.Channel, true
	case "environment":
		return v.environment, true
	case "danger":
		return int64(v.danger), true
	case "depth":
		return int64(v.call.Depth), true
	}
	return nil, false
}

// Parent returns nil: there are no other variables.
func (v *variables) Parent() interpreter.Activation { return nil }
