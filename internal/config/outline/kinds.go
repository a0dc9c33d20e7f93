package outline

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Typed is the schema of a type.
func Typed(t string) map[string]any { return map[string]any{"type": t} }

// Matching is the schema of texts with a pattern.
func Matching(pattern string) map[string]any {
	return map[string]any{"type": "string", "pattern": pattern}
}

// Whole describes whole numbers between low and high, both included.
func Whole(low, high int) Shape {
	s := Shape{Name: "number", Bounds: fmt.Sprintf("%d to %d", low, high),
		Schema: map[string]any{"type": "integer", "minimum": low, "maximum": high}}
	if low == high {
		s.Bounds = strconv.Itoa(low)
	}
	return s
}

// Time describes times of at most most.
func Time(most time.Duration) Shape {
	bound := most.String()
	for _, zero := range []string{"m0s", "h0m"} { // a unit that is zero: 10m0s is 10m
		if strings.HasSuffix(bound, zero) {
			bound = bound[:len(bound)-2]
		}
	}
	if days := most / (24 * time.Hour); days > 1 && most%(24*time.Hour) == 0 {
		bound = fmt.Sprintf("%d days", days)
	}
	return Shape{Name: "time", Bounds: "at most " + bound, Schema: Matching("^([0-9.]+(ms|s|m|h))+$")}
}
