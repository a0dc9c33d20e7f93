package tabular

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

func summaryOf(name, text string) (string, bool) {
	return Summary(name, strings.NewReader(text), int64(len(text)))
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
		{"quotes, lines in cells, long cells", "a.csv", "a\n\"x\ny\"\n" + strings.Repeat("z", 61) + "\n",
			"table: 2 rows, 1 column\n  a: text\nfirst 2 rows:\na\nx y\n" + strings.Repeat("z", 59) + "…"},
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

// parquet is a file with the two columns n and name, and a million rows.
func parquet() []byte {
	field := func(delta, kind byte, b ...byte) []byte { return append([]byte{delta<<4 | kind}, b...) }
	zigzag := func(n int64) []byte { return binary.AppendUvarint(nil, uint64(n<<1)) }
	text := func(s string) []byte { return append([]byte{byte(len(s))}, s...) }
	var f bytes.Buffer
	f.Write(field(1, thriftI32, zigzag(1)...)) // version
	f.Write(field(1, thriftList, 3<<4|thriftStruct))
	f.Write(field(4, thriftBinary, text("schema")...))
	f.Write(append(field(1, thriftI32, zigzag(2)...), 0)) // num_children
	f.Write(field(1, thriftI32, zigzag(2)...))            // INT64
	f.Write(append(field(3, thriftBinary, text("n")...), 0))
	f.Write(field(1, thriftI32, zigzag(6)...)) // BYTE_ARRAY
	f.Write(field(3, thriftBinary, text("name")...))
	f.Write(append(field(2, thriftI32, zigzag(0)...), 0)) // UTF8
	f.Write(field(1, thriftI64, zigzag(1_000_000)...))
	f.Write(field(1, thriftList, 0<<4|thriftStruct))
	f.WriteByte(0)
	out := append([]byte("PAR1"), f.Bytes()...)
	out = binary.LittleEndian.AppendUint32(out, uint32(f.Len()))
	return append(out, "PAR1"...)
}

func TestParquet(t *testing.T) {
	b := parquet()
	const want = "table: 1000000 rows, 2 columns\n  n: int64\n  name: text"
	if got, ok := summaryOf("a.parquet", string(b)); !ok || got != want {
		t.Errorf("%t %q", ok, got)
	}
	for n := range len(b) {
		if got, ok := summaryOf("a.parquet", string(b[n:])); ok && n > 0 && n < len(b)-8 && got == want && n > 4 {
			t.Errorf("without its first %d bytes it is a table", n)
		}
	}
	if got, ok := summaryOf("a.parquet", strings.Replace(string(b), "\x04name", "\x7fname", 1)); ok {
		t.Errorf("a name that is longer than the footer: %q", got)
	}
	long := bytes.Clone(b)
	binary.LittleEndian.PutUint32(long[len(long)-8:], 1<<31)
	if _, ok := summaryOf("a.parquet", string(long)); ok {
		t.Error("a footer longer than the file")
	}
}

// FuzzSummary: a summary of any bytes is valid UTF-8 of bounded size, and no file makes it panic.
func FuzzSummary(f *testing.F) {
	f.Add("a.csv", []byte("a,b\n1,2\n"))
	f.Add("a.tsv", []byte("a\tb\n"))
	f.Add("a.parquet", parquet())
	f.Fuzz(func(t *testing.T, name string, b []byte) {
		got, ok := Summary(name, bytes.NewReader(b), int64(len(b)))
		if !ok {
			return
		}
		if most := (firstRows + 4) * maxColumns * (4*maxCell + 20); len(got) > most || strings.ContainsRune(got, 0) {
			t.Fatalf("%d bytes: %.200q", len(got), got)
		}
	})
}
