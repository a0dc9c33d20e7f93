package redact

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// Restore returns the arguments with the session's tokens replaced by their values, in strings whose class the
// contract can see. It leaves names of members, unknown tokens, and tokens in another spelling.
//
// A write through MCP, A2A or a direct tool sees every class. Any other contract sees a class only
// if its redact key is written and does not list it: then its results show that class as well.
func (r *Redactor) Restore(d policy.Decision) (call.Args, error) {
	raw := d.Call.Args.Raw()
	src := string(raw)
	if r.Vaults == nil || !strings.Contains(src, "_") {
		return d.Call.Args, nil
	}
	all, err := values(raw)
	if err != nil {
		return call.Args{}, fmt.Errorf("restoring the arguments: %w", err)
	}
	var edits []edit
	for _, l := range all {
		old := l.text(src)
		text := r.restored(d, old)
		if text == old {
			continue
		}
		q, err := jsontext.AppendQuote(nil, text)
		if err != nil {
			return call.Args{}, fmt.Errorf("restoring the arguments: %w", err)
		}
		edits = append(edits, edit{l.span, string(q)})
	}
	if len(edits) == 0 {
		return d.Call.Args, nil
	}
	a, err := call.ParseArgs([]byte(apply(src, edits)))
	if err != nil {
		return call.Args{}, fmt.Errorf("restoring the arguments: %w", err)
	}
	return a, nil
}

// Meanings returns the value of each token in the arguments of a call, if the contract lets its tool see it. The
// result is for the human who is asked about the call only. Values are quoted in ASCII. The tokens come in the order
// of the arguments.
func (r *Redactor) Meanings(d policy.Decision) []string {
	raw := d.Call.Args.Raw()
	src := string(raw)
	if r.Vaults == nil || !strings.Contains(src, "_") {
		return nil
	}
	all, err := values(raw)
	if err != nil {
		return []string{"the arguments cannot be read, so no token in them is restored"} // Restore refuses them
	}
	var out []string
	for _, l := range all {
		text := l.text(src)
		for _, t := range tokens(text) {
			token := text[t.Start:t.End]
			v := r.restored(d, token)
			if says := token + " stands for " + strconv.QuoteToASCII(v); v != token && !slices.Contains(out, says) {
				out = append(out, says)
			}
		}
	}
	return out
}

// values returns the strings that are values of the arguments; names of members are left out.
func values(raw []byte) ([]leaf, error) {
	all, err := leaves(raw)
	return slices.DeleteFunc(all, func(l leaf) bool { return l.key || l.kind != '"' }), err
}

// restored puts the tokens of one string back, once: a value that looks like a token stays.
func (r *Redactor) restored(d policy.Decision, s string) string {
	var edits []edit
	for _, t := range tokens(s) {
		token := s[t.Start:t.End]
		class := strings.ToLower(token[1:strings.LastIndexByte(token, '_')])
		if v, ok := r.Vaults.Value(d.Call.Session, token); ok && (class == "text" || maySee(d.Contract, class)) {
			edits = append(edits, edit{t, v})
		}
	}
	return apply(s, edits)
}

// maySee reports whether a contract's tool is given the values of a class.
func maySee(c contract.Contract, class string) bool {
	if c.Mode == contract.Write && c.Transport != contract.SandboxedExec && c.Transport != "" {
		return true
	}
	_, written := c.Keys["redact"]
	return written && !slices.Contains(c.Redact, class)
}

// tokens returns the positions of text in the form of a token: "[", a class in capitals and digits, "_", a number
// from 1, "]".
func tokens(s string) []span {
	var out []span
	for i := 0; i < len(s); i++ {
		if s[i] != '[' || i+1 == len(s) || s[i+1] < 'A' || s[i+1] > 'Z' {
			continue
		}
		j := i + 1
		for j < len(s) && (s[j] >= 'A' && s[j] <= 'Z' || s[j] == '_' || isDigit(s[j])) {
			j++
		}
		n := strings.LastIndexByte(s[i:j], '_') + i + 1 // of the number
		if n-i >= 3 && j > n && j-n <= 9 && s[n] != '0' && digitsIn(s[n:j]) == j-n && j < len(s) && s[j] == ']' {
			out = append(out, span{Start: i, End: j + 1})
			i = j
		}
	}
	return out
}

// foreign returns the edits for text of a tool that only looks like a token of ours. It gets a token of its own, so
// that restoring it gives the tool's text and never a person's value.
func (p *pass) foreign(s string) []edit {
	var out []edit
	for _, t := range tokens(s) {
		if mine, ok := p.literals(s[t.Start:t.End]); ok {
			out = append(out, edit{t, mine})
		}
	}
	return out
}
