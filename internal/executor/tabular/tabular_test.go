package tabular

import (
	"bytes"
	"context"
	"runtime"
	"strings"
	"testing"
)

func summaryOf(name, text string) (string, bool) {
	return Summary(context.Background(), name, strings.NewReader(text), int64(len(text)))
}

func TestCSV(t *testing.T) {
	for _, row := range []struct{ why, name, text, want string }{
		{"types", "a.csv", "\ufeffn,x,day,at,ok,code,none,mixed\n1,1,2026-01-02,2026-01-02 03:04:05,true,007,,1\n" +
			"-2,0.5,2026-01-03,2026-01-03T03:04:05Z,False,008,,b\n",
			"table: 2 rows, 8 columns\n  n: integer\n  x: number\n  day: date\n  at: time\n  ok: boolean\n  code: text\n" +
				"  none: empty\n  mixed: text\nfirst 2 rows:\nn,x,day,at,ok,code,none,mixed\n" +
				"1,1,2026-01-02,2026-01-02 03:04:05,true,007,,1\n-2,0.5,2026-01-03,2026-01-03T03:04:05Z,False,008,,b"},
		{"the first five", "a.CSV", "n\n1\n2\n3\n4\n5\n6\n",
			"table: 6 rows, 1 column\n  n: integer\nfirst 5 rows:\nn\n1\n2\n3\n4\n5"},
		{"tabs", "a.tsv", "a\tb\n1\tx\n", "table: 1 row, 2 columns\n  a: integer\n  b: text\nfirst 1 row:\na,b\n1,x"},
		{"quotes, lines in cells, long cells", "a.csv", "a\n\"x\ny\"\nsome words 4111 " + strings.Repeat("z", 61) + "\n",
			"table: 2 rows, 1 column\n  a: text\nfirst 2 rows:\na\nx y\nsome words …"},
		{"a header alone", "a.csv", "a,b\n", "table: 0 rows, 2 columns\n  a: empty\n  b: empty"},
	} {
		if got, ok := summaryOf(row.name, row.text); !ok || got != row.want {
			t.Errorf("%s: %t\n%s\nwant\n%s", row.why, ok, got, row.want)
		}
	}
	for _, row := range [][2]string{
		{"a.txt", "a,b\n"}, {"a.csv", ""}, {"a.csv", "\x89PNG\x00\xff\n"}, {"a.parquet", "a,b\n"},
	} {
		if got, ok := summaryOf(row[0], row[1]); ok {
			t.Errorf("%q: %q", row, got)
		}
	}
	if got, _ := summaryOf("a.csv", strings.Repeat("a,", 100)+"b\n"); !strings.Contains(got, "101 columns") ||
		!strings.Contains(got, "and 51 more columns") {
		t.Error(got)
	}
}

// TestABoundBeforeTheWork: a summary reads so many bytes and so many values, whatever the file holds, and ends with its
// call.
func TestABoundBeforeTheWork(t *testing.T) {
	lines := func(line string, n int) string { return strings.Repeat(line, n) }
	for _, row := range []struct{ why, text, want string }{
		{"a long table", "n,m\n" + lines("1,2\n", 1<<20), "table: at least 49998 rows, 2 columns\n"},
		{"a large table", "n\n" + lines(strings.Repeat("x", 1023)+"\n", 4096), "table: at least 1023 rows, 1 column\n"},
		{"control: a whole one", "n,m\n" + lines("1,2\n", 1000), "table: 1000 rows, 2 columns\n"},
	} {
		if got, ok := summaryOf("a.csv", row.text); !ok || !strings.HasPrefix(got, row.want) {
			t.Errorf("%s: %t %.100q", row.why, ok, got)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := Summary(over, "a.csv", strings.NewReader("n\n1\n"), 4); ok {
		t.Error("it goes on after the end of its call")
	}
	for why, text := range map[string]string{
		"one line of commas": lines(",", 32<<20), "quotes over lines": lines(lines(",", 9000)+"\"\n\"", 3000),
		"lines": lines("\n", 32<<20), "one cell": "\"" + lines("x", 32<<20),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		summaryOf("a.csv", text)
		if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 4*Memory {
			t.Errorf("%s: %d MB are allocated", why, (after.TotalAlloc-before.TotalAlloc)>>20)
		}
	}
}

// FuzzSummary: a summary of any bytes is valid UTF-8 of bounded size, and no file makes it panic.
func FuzzSummary(f *testing.F) {
	f.Add("a.csv", []byte("a,b\n1,2\n"))
	f.Add("a.tsv", []byte("a\tb\n"))
	f.Fuzz(func(t *testing.T, name string, b []byte) {
		got, ok := Summary(t.Context(), name, bytes.NewReader(b), int64(len(b)))
		if !ok {
			return
		}
		if most := (firstRows + 4) * maxColumns * (4*maxCell + 20); len(got) > most || strings.ContainsRune(got, 0) {
			t.Fatalf("%d bytes: %.200q", len(got), got)
		}
	})
}
