package catalog

import (
	_ "embed" // the synonyms
	"strings"
	"sync"
	"unicode"
)

// stopWords carry no information about a tool: articles, prepositions, pronouns and the words around a question that
// somebody asks in a sentence.
var stopWords = wordSet(`a about again also am an and any anyone anything are as at be because been being both but by can
 cannot could d did do does doing don done few for from further had has have having he her here hers him his how i if in into
 is it its itself just ll m me more most my myself no nor not now of on once only or other our ours own please re s same she
 should so some someone something such t than that the their theirs them themselves then there these they this those through
 to too until us use used using ve very was we were what when where which while who whom whose why will with would yes you your
 yours yourself
 appreciate assist assistance curious give giving going great hello help helps hey hi interested know let like looking may
 maybe might much must need needs ok okay really specific specifically sure tell thank thanks think thought understand want
 wanted wants way ways well wish wonder wondering`)

func wordSet(s string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(s) {
		set[w] = true
	}
	return set
}

//go:embed synonyms.txt
var synonymText string

// synonyms returns the stems that stand for each stem.
var synonyms = sync.OnceValue(func() map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(synonymText) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		group := strings.Fields(line)
		for i, w := range group {
			for k, other := range group {
				if i != k {
					out[stem(w)] = append(out[stem(w)], stem(other))
				}
			}
		}
	}
	return out
})

// words splits text into lower-case words. It splits at every character that is not a letter or digit, and before a
// capital (createIssue). Chinese and Japanese have no spaces between words: each two characters there are one.
func words(s string) []string {
	var out []string
	var word strings.Builder
	flush := func() {
		if w := word.String(); w != "" {
			out = append(out, pairs(strings.ToLower(w))...)
		}
		word.Reset()
	}
	small, packed := false, false
	for _, r := range s {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush()
			small = false
			continue
		case unicode.IsUpper(r) && small, packed != isPacked(r):
			flush()
		}
		small, packed = unicode.IsLower(r), isPacked(r)
		word.WriteRune(r)
	}
	flush()
	return out
}

// isPacked reports whether a letter is of a script that has no spaces between words.
func isPacked(r rune) bool {
	return r >= 0x3000 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana)
}

// pairs returns the pairs of characters of a word that has no spaces within; another word as it is.
func pairs(w string) (out []string) {
	runes := []rune(w)
	if len(runes) < 3 || !isPacked(runes[0]) {
		return []string{w}
	}
	for i := range len(runes) - 1 {
		out = append(out, string(runes[i:i+2]))
	}
	return out
}

// stems returns the stems of the words of a text that say something; of one that has none, of all its words.
func stems(s string) []string {
	all := words(s)
	out := make([]string, 0, len(all))
	for _, w := range all {
		if !stopWords[w] {
			out = append(out, stem(w))
		}
	}
	if len(out) == 0 {
		for _, w := range all {
			out = append(out, stem(w))
		}
	}
	return out
}

// stem takes the endings of English words away that change between a question and a name: of plurals, participles and
// nouns made of verbs. It need not leave a word, only the same for words that belong together.
func stem(w string) string {
	switch {
	case strings.HasSuffix(w, "ies") && len(w) > 4:
		w = w[:len(w)-3] + "y"
	case strings.HasSuffix(w, "sses"), strings.HasSuffix(w, "xes"), strings.HasSuffix(w, "ches"),
		strings.HasSuffix(w, "shes"):
		w = w[:len(w)-2]
	case strings.HasSuffix(w, "s") && len(w) > 3 && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") &&
		!strings.HasSuffix(w, "is"):
		w = w[:len(w)-1]
	}
	for _, end := range []string{"ation", "ing", "ed"} {
		if root, ok := strings.CutSuffix(w, end); ok && len(root) >= 3 && strings.ContainsAny(root, "aeiouy") &&
			(end != "ation" || len(root) >= 5) {
			if n := len(root); root[n-1] == root[n-2] && !strings.ContainsAny(root[n-1:], "lsz") {
				root = root[:n-1] // running
			}
			w = root
			break
		}
	}
	if len(w) > 3 && strings.HasSuffix(w, "e") {
		w = w[:len(w)-1]
	}
	if len(w) > 2 && strings.HasSuffix(w, "y") {
		w = w[:len(w)-1] + "i"
	}
	return w
}
