package files

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"waldo/internal/detect"
	"waldo/internal/model/display"
	"waldo/internal/protocol/jsonschema"
)

// What a model is not shown must not show by what is found either: a question for each letter would spell it. So a text
// is only where it neither begins nor ends within something hidden, and a regular expression sees masks in its place.

// occurrences returns where a text is first, and how often it is, up to twice: also where it overlaps itself.
func occurrences(in, text string, hidden []detect.Find) (first, n int) {
	first = -1
	for i := 0; n < 2; {
		next := strings.Index(in[i:], text)
		if next < 0 {
			break
		}
		i += next
		if past := parted(hidden, i, i+len(text)); past > i {
			i = past
			continue
		}
		if n++; n == 1 {
			first = i
		}
		i++
	}
	return first, n
}

// parted returns where to look next when a text from start to end begins or ends within something hidden; else start.
func parted(hidden []detect.Find, start, end int) int {
	for _, h := range hidden {
		if h.Start < start && start < h.End {
			return h.End
		}
		if h.Start < end && end < h.End {
			return max(start+1, h.End-(end-start))
		}
	}
	return start
}

// question is what files.search looks for: a text, or a regular expression.
type question struct {
	text string
	form *regexp.Regexp
}

// maxWeight is how many instructions, about, a regular expression may compile to. Nothing ends a match that has begun,
// and it takes that many steps for each byte of a line: about a second at most.
const maxWeight = 1000

func ask(query string, regex bool) (q question, err error) {
	if !regex {
		return question{text: query}, nil
	}
	tree, err := syntax.Parse(query, syntax.Perl)
	if err != nil {
		return q, fmt.Errorf("the query is no regular expression: %w", err)
	}
	if jsonschema.Weigh(tree) > maxWeight {
		return q, errors.New("the regular expression is too large: repeat fewer things fewer times")
	}
	if q.form, err = regexp.Compile(query); err != nil {
		return q, fmt.Errorf("the query is no regular expression: %w", err)
	}
	return q, nil
}

// in returns what is shown of a line that has what is looked for; false: it has not.
func (w *work) in(q question, line string) (shown string, ok bool) {
	if q.form == nil && !strings.Contains(line, q.text) {
		return "", false
	}
	hidden := w.hiding.In(line)
	if q.form != nil {
		ok = q.form.MatchString(masked(line, hidden))
	} else {
		_, n := occurrences(line, q.text, hidden)
		ok = n > 0
	}
	return excerpt(line, hidden), ok
}

// masked returns a line with a mark in place of each hidden range.
func masked(line string, hidden []detect.Find) string {
	var b strings.Builder
	at := 0
	for _, h := range hidden {
		if h.Start >= at {
			b.WriteString(line[at:h.Start] + "[" + strings.ToUpper(strings.TrimSuffix(h.Class, "s")) + "]") // as a result has it
		}
		at = max(at, h.End)
	}
	return b.String() + line[at:]
}

// excerpt cuts a line that is long, and never within something hidden: a part of it is not known for one later.
func excerpt(line string, hidden []detect.Find) string {
	if len(line) <= maxFoundAt {
		return line
	}
	cut := len(strings.TrimSuffix(display.Clip(line, maxFoundAt), "…"))
	for _, h := range slices.Backward(hidden) { // one that begins earlier can reach over the new cut, too
		if h.Start < cut && cut < h.End {
			cut = h.Start
		}
	}
	return line[:cut] + "…"
}
