// Package diff shows how one definition differs from another, so that nothing in either can hide.
package diff

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"waldo/internal/protocol/strictjson"
)

// How much of a difference is shown.
const (
	maxDiffLines = 100
	maxDiffText  = 400 // bytes of one value
	beforeDiff   = 60  // bytes before the first that differs
)

// Lines says in lines how one definition differs from another: "-" what was, "+" what is, each with
// its place. Text is quoted in ASCII, so that a letter that only looks the same, a hidden one or an
// escape code shows as what it is.
func Lines(was, now strictjson.Value) []string {
	before, after := map[string]string{}, map[string]string{}
	leaves("", was, before)
	leaves("", now, after)
	var places []string
	for place := range before {
		places = append(places, place)
	}
	for place := range after {
		if _, both := before[place]; !both {
			places = append(places, place)
		}
	}
	sort.Strings(places)
	var out []string
	for _, place := range places {
		b, had := before[place]
		a, has := after[place]
		if had && has && a == b {
			continue
		}
		if len(out) >= maxDiffLines {
			return append(out, "… and more")
		}
		from := differ(b, a)
		if had {
			out = append(out, fmt.Sprintf("- %s: %s", place, excerpt(b, from)))
		}
		if has {
			out = append(out, fmt.Sprintf("+ %s: %s", place, excerpt(a, from)))
		}
	}
	return out
}

// letters are the characters of names that need no quotes.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."

// leaves collects the values that hold no other, by their place, as in inputSchema.properties.a.type.
func leaves(place string, v strictjson.Value, out map[string]string) {
	at := func(name string) string {
		if name == "" || strings.Trim(name, letters) != "" {
			name = strconv.QuoteToASCII(name)
		}
		if place == "" {
			return name
		}
		return place + "." + name
	}
	if m, ok := v.Members(); ok && len(m) > 0 {
		for name, part := range m {
			leaves(at(name), part, out)
		}
		return
	}
	if e, ok := v.Elements(); ok && len(e) > 0 {
		for i, part := range e {
			leaves(fmt.Sprintf("%s[%d]", place, i), part, out)
		}
		return
	}
	if s, ok := v.Text(); ok {
		out[place] = strconv.QuoteToASCII(s)
	} else if !v.IsZero() {
		out[place] = strconv.QuoteToASCII(string(v.Canonical()))
		out[place] = strings.Trim(out[place], `"`)
	}
}

// differ returns where two texts begin to differ.
func differ(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// excerpt cuts a long text around the place where it differs.
func excerpt(s string, from int) string {
	if len(s) <= maxDiffText || !utf8.ValidString(s) {
		return s[:min(len(s), maxDiffText)]
	}
	begin := max(0, min(from-beforeDiff, len(s)-maxDiffText))
	out := s[begin:min(len(s), begin+maxDiffText)]
	if begin > 0 {
		out = "…" + out
	}
	if begin+maxDiffText < len(s) {
		out += "…"
	}
	return out
}
