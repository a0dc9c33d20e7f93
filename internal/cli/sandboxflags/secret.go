package sandboxflags

import (
	"strings"

	"waldo/internal/model/secret"
)

// Secret takes NAME or VARIABLE=NAME apart.
func Secret(s string) (variable string, ref secret.Ref) {
	v, name, ok := strings.Cut(s, "=")
	if !ok {
		name = v
	}
	return v, secret.Ref(name)
}

// usableRef reports whether a reference is a name or a place.
func usableRef(ref secret.Ref) bool {
	_, ok := ref.Place()
	return ok || secret.Name(string(ref))
}
