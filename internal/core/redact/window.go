package redact

// Window returns the part of text[start:end] that can be shown: without the known secrets that reach over its edges.
// Before and after say that the text itself was cut there. Window then leaves out a fixed number of bytes beside that
// cut, since a part of a secret can stand there. The number never depends on a part of a secret: an agent that chooses
// the text would learn the secret from it.
func (g *Registry) Window(text string, start, end int, before, after bool) string {
	p := &pass{known: newMatcherOf(g)}
	return p.window(text, start, end, before, after)
}

func (p *pass) window(text string, start, end int, before, after bool) string {
	start, end = max(0, start), min(end, len(text))
	if keep := p.known.Keep(); keep > 0 {
		if before {
			start = max(start, keep)
		}
		if after {
			end = min(end, len(text)-keep)
		}
		spans := p.known.Spans([]byte(text))
		for moved := true; moved; {
			moved = false
			for _, s := range spans {
				if s.Start < start && start < s.End {
					start, moved = s.End, true
				}
				if s.Start < end && end < s.End {
					end, moved = s.Start, true
				}
			}
		}
	}
	if start >= end {
		return ""
	}
	return text[start:end]
}

// Head returns how many of the first n bytes of a text may be shown. More says that the text was cut at its end.
func (g *Registry) Head(text string, n int, more bool) int {
	return len(g.Window(text, 0, n, false, more))
}
