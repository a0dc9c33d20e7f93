package policy

import (
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"waldo/internal/detect"
)

// ofTexts are the functions over every text of a value, at any depth: they suit a rule for all capabilities, which
// cannot know the names of arguments.
func ofTexts() []cel.EnvOption {
	dyn := cel.DynType
	return []cel.EnvOption{
		cel.Function("says", cel.Overload("says", []*cel.Type{dyn, cel.StringType}, cel.BoolType, cel.BinaryBinding(says))),
		cel.Function("secrets", cel.Overload("secrets", []*cel.Type{dyn}, cel.BoolType, cel.UnaryBinding(
			overTexts(func(text string) ref.Val { return types.Bool(detect.Secret(text)) })))),
		cel.Function("length", cel.Overload("length", []*cel.Type{dyn}, cel.IntType, cel.UnaryBinding(
			overTexts(func(text string) ref.Val { return types.Int(len(text)) })))),
	}
}

// says reports whether a regular expression matches a text of a value. The texts of a list are one text, with spaces.
func says(v, pattern ref.Val) ref.Val {
	s, ok := pattern.(types.String)
	if !ok {
		return types.NewErr("%s is not text", pattern.Type().TypeName())
	}
	re, err := regexp.Compile(string(s))
	if err != nil {
		return types.NewErr("%v", err)
	}
	return overTexts(func(text string) ref.Val { return types.Bool(re.MatchString(text)) })(v)
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

// gather writes the texts of a value, each with end behind it. It returns the first value that is unknown.
func gather(b *strings.Builder, v ref.Val, end string) ref.Val {
	switch v := v.(type) {
	case *types.Unknown:
		return v
	case types.String:
		b.WriteString(string(v))
		b.WriteString(end)
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if unknown := gather(b, v.Get(it.Next()), "\n"); unknown != nil {
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
