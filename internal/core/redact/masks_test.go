package redact

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"waldo/internal/detect"
)

// TestMasks redacts the text files below the folders of WALDO_MASKS (separated by colons) as a result, once for each
// class. It prints the masked values per 10 MB, with up to WALDO_MASKS_EXAMPLES examples. Files of tests and examples
// count apart, because their keys and passwords are deliberate. Other source code, documents and licences hold hardly
// any secrets, so each mask counts as false.
func TestMasks(t *testing.T) {
	folders := os.Getenv("WALDO_MASKS")
	if folders == "" {
		t.Skip("WALDO_MASKS names no folders of source code")
	}
	examples, err := strconv.Atoi(os.Getenv("WALDO_MASKS_EXAMPLES"))
	if err != nil {
		examples = 5
	}
	classes := detect.Classes()
	if only := os.Getenv("WALDO_MASKS_CLASSES"); only != "" {
		classes = strings.Split(only, ",")
	}
	total, inTests, bytesOf := map[class]int{}, map[class]int{}, 0
	for _, dir := range filepath.SplitList(folders) {
		size, found := 0, map[class][]string{}
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil || len(b) > 8<<20 || !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
				return err
			}
			size += len(b)
			for _, c := range classes {
				for _, v := range masked(c, string(b)) {
					if ofTests.MatchString(path) {
						inTests[c]++
						continue
					}
					found[c] = append(found[c], path+": "+v)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		bytesOf += size
		t.Logf("%s: %.1f MB of text", dir, float64(size)/1e6)
		for _, c := range classes {
			total[c] += len(found[c])
			t.Logf("  %-12s %5d masks, %7.2f for each 10 MB", c, len(found[c]), float64(len(found[c]))*1e7/float64(size))
			step := max(1, len(found[c])/max(1, examples))
			for i := 0; i < len(found[c]) && examples > 0; i += step {
				t.Log("      ", found[c][i])
			}
		}
	}
	t.Logf("together: %.1f MB", float64(bytesOf)/1e6)
	for _, c := range classes {
		t.Logf("  %-12s %5d masks, %7.2f for each 10 MB; %d more in files of tests", c, total[c],
			float64(total[c])*1e7/float64(bytesOf), inTests[c])
	}
	if bytesOf < 10e6 {
		t.Errorf("%d bytes are too few to say what happens in 10 MB", bytesOf)
	} else if n := float64(total["secrets"]) * 1e7 / float64(bytesOf); n > 1 {
		t.Errorf("with the default class, %.2f masks for each 10 MB of source code, at most 1 is the goal", n)
	}
}

// ofTests tells the files of tests, fixtures and examples.
var ofTests = regexp.MustCompile(`(?i)(^|[/_.-])(tests?|testdata|fixtures?|examples?|specs?)([/_.-]|$)`)

// masked returns the values of one class that redaction hides in a text beside those that it hides by default,
// each with the text around it.
func masked(c class, s string) (values []string) {
	p := &pass{known: noSecrets(), clean: true, classes: map[class]bool{c: true}}
	add := func(v string) { values = append(values, around(s, v)) }
	if c == "secrets" {
		p.hid = add
	} else {
		p.token = func(_, v string) (string, bool) { add(v); return "", false }
	}
	if all, err := leaves([]byte(s)); err == nil && len(all) > 1 {
		p.textOrJSON(s)
		return values
	}
	p.hid, p.token = nil, nil
	text := []byte(Clean(s))
	for _, e := range p.byForm(text) {
		if (e.text == secretMask) == (c == "secrets") {
			values = append(values, within(string(text), e.Start, e.End))
		}
	}
	return values
}

// around returns the line of a text that contains a value.
func around(s, v string) string {
	i := strings.Index(s, v)
	if i < 0 {
		return strconv.Quote(v)
	}
	return within(s, i, i+len(v))
}

// within returns a part of a text and its line.
func within(s string, start, end int) string {
	from, to := strings.LastIndexByte(s[:start], '\n')+1, end
	if e := strings.IndexByte(s[to:], '\n'); e >= 0 {
		to += e
	}
	return strconv.Quote(s[start:min(end, start+60)]) + " in " +
		strconv.Quote(s[max(from, start-70):min(to, start+min(end-start, 100)+50)])
}
