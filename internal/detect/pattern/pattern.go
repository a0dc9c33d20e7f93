// Package pattern has regular expressions that compile at their first use. A start of waldo pays for none of them.
package pattern

import (
	"regexp"
	"sync"
)

// Lazy returns a function that compiles expr once. It panics, as regexp.MustCompile does, if expr is wrong.
func Lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
