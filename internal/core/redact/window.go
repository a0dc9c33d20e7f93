package redact

import (
	"slices"

	"waldo/internal/detect"
	"waldo/internal/model/contract"
)

// Hiding finds what a model is not shown under one contract.
type Hiding struct{ p *pass }

// Hiding returns that of a contract. That of a nil Redactor hides nothing.
func (r *Redactor) Hiding(c contract.Contract) Hiding {
	if r == nil {
		return Hiding{}
	}
	return Hiding{r.pass(c)}
}

// In returns the ranges of a text, by their start: known secrets, texts with the form of one, and the classes that the
// contract names. They can overlap.
func (h Hiding) In(text string) []detect.Find {
	if h.p == nil {
		return nil
	}
	b := []byte(text)
	found := detect.In(b, h.p.classes)
	for _, s := range h.p.known.Spans(b) {
		found = append(found, detect.Find{Start: s.Start, End: s.End, Class: detect.Secrets})
	}
	slices.SortFunc(found, func(a, b detect.Find) int { return a.Start - b.Start })
	return found
}

// Window returns the part of text[start:end] that can be shown: without the known secrets and the personal data that
// reach over its edges. Before and after say that the text itself was cut there. Window then leaves out a fixed number
// of bytes beside that cut, since a part of a secret can stand there. The number never depends on a part of a secret: an
// agent that chooses the text would learn the secret from it.
func (g *Registry) Window(text string, start, end int, before, after bool) string {
	p := &pass{known: newMatcherOf(g)}
	return p.window(text, start, end, before, after)
}

func (p *pass) window(text string, start, end int, before, after bool) string {
	start, end = max(0, start), min(end, len(text))
	found := append(near(text, start), near(text, end)...)
	if keep := p.known.Keep(); keep > 0 {
		if before {
			start = max(start, keep)
		}
		if after {
			end = min(end, len(text)-keep)
		}
		for _, s := range p.known.Spans([]byte(text)) {
			found = append(found, detect.Find{Start: s.Start, End: s.End})
		}
	}
	for moved := true; moved; {
		moved = false
		for _, s := range found {
			if s.Start < start && start < s.End {
				start, moved = s.End, true
			}
			if s.Start < end && end < s.End {
				end, moved = s.Start, true
			}
		}
	}
	if start >= end {
		return ""
	}
	return text[start:end]
}

// near returns the personal data beside an edge of a text, of each class: half of a number is not known for one later.
func near(text string, edge int) []detect.Find {
	const beside = 256 // bytes: personal data is shorter
	from := max(0, edge-beside)
	if edge <= 0 || edge >= len(text) {
		return nil
	}
	found := detect.In([]byte(text[from:min(len(text), edge+beside)]), every)
	for i := range found {
		found[i].Start, found[i].End = found[i].Start+from, found[i].End+from
	}
	return found
}

// every turns on each class.
var every = func() map[class]bool {
	on := map[class]bool{}
	for _, c := range detect.Classes() {
		on[c] = true
	}
	return on
}()

// Head returns how many of the first n bytes of a text may be shown. More says that the text was cut at its end.
func (g *Registry) Head(text string, n int, more bool) int {
	return len(g.Window(text, 0, n, false, more))
}
