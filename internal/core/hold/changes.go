package hold

import (
	"path"
	"slices"
	"strings"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// Changes returns the later calls, from 0, whose previews call n of a statement can change: calls of files.* on the
// same path, and on one above or below it. Where the call is the first one in the folder of another, that counts too:
// it can make the folder. Struck calls change nothing.
func (s Statement) Changes(n int) (later []int) {
	own := s.paths(n)
	for k := n + 1; k < len(s.Calls) && len(own) > 0; k++ {
		if slices.ContainsFunc(s.paths(k), func(p string) bool {
			return slices.ContainsFunc(own, func(q string) bool { return related(p, q) }) || s.first(n, path.Dir(p))
		}) {
			later = append(later, k)
		}
	}
	return later
}

// related reports whether one of two paths is the other, or within it.
func related(a, b string) bool {
	return a == "." || b == "." || contract.Within(a, b) || contract.Within(b, a)
}

// first reports whether call n is the first one that is not struck out in a folder.
func (s Statement) first(n int, dir string) bool {
	for i := range n + 1 {
		if slices.ContainsFunc(s.paths(i), func(p string) bool { return p != dir && contract.Within(p, dir) }) {
			return i == n
		}
	}
	return false
}

// paths returns the paths that a call of files.* names; "." where it names none. Another call, and a struck one, has
// none. Names that differ in case alone can be one file.
func (s Statement) paths(n int) (out []string) {
	one := s.Calls[n]
	args, err := call.ParseArgs(one.Args)
	if !strings.HasPrefix(string(one.Capability), "files.") || slices.Contains(s.Struck, n+1) || err != nil {
		return nil
	}
	for _, name := range []string{"path", "from", "to", "into"} {
		if text, ok := args.Values()[name].(string); ok {
			out = append(out, strings.ToLower(path.Clean(text)))
		}
	}
	if len(out) == 0 {
		out = []string{"."}
	}
	return out
}

// Renewed returns what call n would do, once call by has changed it: now, unless somebody else's change shows: then
// was, which differs. A call that can only have made the folder of a new file leaves it new.
func (s Statement) Renewed(by, n int, was, now []string) []string {
	for _, p := range s.paths(n) {
		own := slices.ContainsFunc(s.paths(by), func(q string) bool { return related(p, q) })
		if !own && creates(was) && !creates(now) {
			return was
		}
	}
	return now
}

// creates reports whether a preview of files.* is of a new file.
func creates(preview []string) bool {
	return len(preview) > 1 && strings.HasPrefix(preview[1], "creates ")
}
