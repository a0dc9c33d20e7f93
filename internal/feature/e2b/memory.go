package e2b

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// maxTree bounds the processes that are counted.
const maxTree = 1000

// resident returns the resident memory of a process and its descendants in bytes, as far as the kernel shows them; 0: not.
func resident(pid int) (n int64) {
	if pid <= 0 {
		return 0
	}
	todo := []int{pid}
	for seen := 0; len(todo) > 0 && seen < maxTree; seen++ {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", at))
		if f := strings.Fields(string(b)); len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			n += pages * int64(os.Getpagesize())
		}
		b, _ = os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", at))
		for _, child := range strings.Fields(string(b)) {
			if c, err := strconv.Atoi(child); err == nil {
				todo = append(todo, c)
			}
		}
	}
	return n
}
