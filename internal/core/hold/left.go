package hold

import (
	"context"
	"strings"
)

// Left is what the calls of a statement left at their paths: digests of files. A nil Left, of a call of no statement,
// has none and takes none.
type Left struct{ files map[string]string }

type leftKey struct{}

// Leaves returns a context for the calls of a statement, which are made one after the other.
func Leaves(ctx context.Context) context.Context {
	return context.WithValue(ctx, leftKey{}, &Left{map[string]string{}})
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

// Changed notes that a call changed a path and what is below it. An empty digest: what is there now is not known.
func (l *Left) Changed(path, digest string) {
	if l == nil {
		return
	}
	for p := range l.files {
		if strings.HasPrefix(p, path+"/") {
			delete(l.files, p)
		}
	}
	if l.files[path] = digest; digest == "" {
		delete(l.files, path)
	}
}
