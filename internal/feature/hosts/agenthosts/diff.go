package agenthosts

import (
	"bytes"
	"fmt"
	"strings"
	"waldo/internal/model/display"
)

// maxCompared bounds the table of the comparison, in cells; beyond it everything between the first
// and the last difference is shown as changed.
const maxCompared = 4 << 20

// Diff returns the lines that differ, each with its number: "- 3 old" and "+ 3 new". It shows no context lines,
// because the rest of a host's file can hold secrets.
func Diff(before, after []byte) []string {
	a, b := splitLines(before), splitLines(after)
	from := 0
	for from < len(a) && from < len(b) && a[from] == b[from] {
		from++
	}
	endA, endB := len(a), len(b)
	for endA > from && endB > from && a[endA-1] == b[endB-1] {
		endA, endB = endA-1, endB-1
	}
	x, y := a[from:endA], b[from:endB]
	var out []string
	i, j := 0, 0
	for _, s := range shared(x, y) {
		for ; i < s[0]; i++ {
			out = append(out, fmt.Sprintf("-%4d %s", from+i+1, display.ASCII(x[i])))
		}
		for ; j < s[1]; j++ {
			out = append(out, fmt.Sprintf("+%4d %s", from+j+1, display.ASCII(y[j])))
		}
		i, j = s[0]+1, s[1]+1
	}
	return out
}

func splitLines(text []byte) []string {
	text = bytes.TrimSuffix(text, []byte("\n"))
	if len(text) == 0 {
		return nil
	}
	lines := strings.Split(string(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	return lines
}

// shared returns where the lines stand that both have, as many as can be, and the two ends last.
func shared(x, y []string) [][2]int {
	end := [2]int{len(x), len(y)}
	if (len(x)+1)*(len(y)+1) > maxCompared {
		return [][2]int{end}
	}
	w := len(y) + 1
	best := make([]int32, (len(x)+1)*w)
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if x[i] == y[j] {
				best[i*w+j] = best[(i+1)*w+j+1] + 1
			} else {
				best[i*w+j] = max(best[(i+1)*w+j], best[i*w+j+1])
			}
		}
	}
	var out [][2]int
	for i, j := 0, 0; i < len(x) && j < len(y); {
		switch {
		case x[i] == y[j]:
			out = append(out, [2]int{i, j})
			i, j = i+1, j+1
		case best[(i+1)*w+j] >= best[i*w+j+1]:
			i++
		default:
			j++
		}
	}
	return append(out, end)
}
