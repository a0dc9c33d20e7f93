package hold

import (
	"context"
	"maps"
	"strings"
)

// Left is what the calls of a statement left at their paths: digests of files, and where each path led. A nil Left, of a
// call of no statement, has none and takes none.
type Left struct{ files, led map[string]string }

type leftKey struct{}

// Leaves returns a context for the calls of a statement, which are made one after the other.
func Leaves(ctx context.Context) context.Context {
	return context.WithValue(ctx, leftKey{}, &Left{map[string]string{}, map[string]string{}})
}

// LeftBy returns what the calls of a statement left so far; nil: the call is of no statement.
func LeftBy(ctx context.Context) *Left {
	l, _ := ctx.Value(leftKey{}).(*Left)
	return l
}

// Digest returns what a call left at a path; empty: none of them is known to have changed it.
func (l *Left) Digest(path string) string {
	if l == nil {
		return ""
	}
	return l.files[path]
}

// Leads reports whether a path leads where it led when a call, or its preview, first named it. No call of files.* makes a
// link, so it does unless somebody else changed it.
func (l *Left) Leads(path, to string) bool {
	if l == nil {
		return true
	}
	if was, ok := l.led[path]; ok {
		return was == to
	}
	l.led[path] = to
	return true
}

// Changed notes that a call changed a path and what is below it. An empty digest: what is there now is not known.
func (l *Left) Changed(path, digest string) {
	if l == nil {
		return
	}
	within := func(p, _ string) bool { return strings.HasPrefix(p+"/", path+"/") }
	maps.DeleteFunc(l.files, within)
	if digest == "" { // it was moved or removed: what is there next leads elsewhere
		maps.DeleteFunc(l.led, within)
		return
	}
	l.files[path] = digest
}
