package redact

import (
	"cmp"
	"slices"
	"strings"

	"waldo/internal/detect"
	"waldo/internal/detect/surrogate"
)

// near is how many bytes around a token decide whether it is found again.
const near = 80

// likeIn returns the token in the form of a find of t. It reports false where the text around the find would hide the
// token from Restore: the token in brackets has an end of its own.
func (p *pass) likeIn(t []byte, f detect.Find) (string, bool) {
	if p.like == nil || f.Class == detect.Secrets {
		return "", false
	}
	token, ok := p.like(f.Class, string(t[f.Start:f.End]))
	if !ok {
		return "", false
	}
	before := t[max(0, f.Start-near):f.Start]
	after := t[f.End:min(len(t), f.End+near)]
	want := detect.Find{Start: len(before), End: len(before) + len(token), Class: f.Class}
	return token, slices.Contains(surrogate.In(string(before)+token+string(after)), want)
}

// unkept returns the finds that are not a token of the session themselves.
func (p *pass) unkept(t []byte, finds []detect.Find) []detect.Find {
	if p.kept == nil || len(finds) == 0 {
		return finds
	}
	var tokens []detect.Find
	for _, f := range surrogate.In(string(t)) {
		if p.kept(string(t[f.Start:f.End])) {
			tokens = append(tokens, f)
		}
	}
	return slices.DeleteFunc(finds, func(f detect.Find) bool {
		i, _ := slices.BinarySearchFunc(tokens, f, func(k, f detect.Find) int { return cmp.Compare(k.End, f.End) })
		return i < len(tokens) && tokens[i].Start <= f.Start
	})
}

// apart returns the edits that do not overlap those in order. apply would drop the text between.
func apart(edits, order []edit) []edit {
	return slices.DeleteFunc(edits, func(e edit) bool {
		i, _ := slices.BinarySearchFunc(order, e, func(o, e edit) int { return cmp.Compare(o.end, e.start+1) })
		return i < len(order) && order[i].start < e.end
	})
}

// mayHold reports whether arguments can have a token.
func mayHold(args string) bool { return strings.Contains(args, "_") || len(surrogate.In(args)) > 0 }

// formats reports whether tokens have the form of the values.
func (r *Redactor) formats() bool {
	rules := r.rules.Load()
	return rules != nil && rules.Format
}

// issuable returns the tokens of a string with their classes, in order: those in brackets, and text in the form of a
// value.
func issuable(s string) []detect.Find {
	all := surrogate.In(s)
	for _, t := range tokens(s) {
		all = append(all, detect.Find{Start: t.start, End: t.end,
			Class: strings.ToLower(s[t.start+1 : strings.LastIndexByte(s[:t.end], '_')])})
	}
	slices.SortFunc(all, func(a, b detect.Find) int { return cmp.Compare(a.Start, b.Start) })
	return all
}
