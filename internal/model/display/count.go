package display

import "fmt"

// Count writes a number and a noun, in the plural but for one.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
