package tabular

import (
	"encoding/binary"
	"io"
	"unicode/utf8"
)

// A Parquet file ends with its metadata in Thrift's compact protocol, the length of it, and "PAR1"
// (https://github.com/apache/parquet-format).
const (
	maxFooter  = 4 << 20
	maxDepth   = 32
	maxEntries = 100_000 // of one list, in which each entry takes a byte at least
)

// parquet reads the rows and the columns from the footer of a file.
func (s *summary) parquet(r io.ReaderAt, size int64) error {
	tail := make([]byte, 8)
	if size < 12 {
		return errShape
	}
	if _, err := r.ReadAt(tail, size-8); err != nil || string(tail[4:]) != "PAR1" {
		return errShape
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n > maxFooter || n > size-12 {
		return errShape
	}
	footer := make([]byte, n)
	if _, err := r.ReadAt(footer, size-8-n); err != nil {
		return errShape
	}
	t := &thrift{b: footer}
	t.fields(func(id int16, kind byte) bool {
		switch {
		case id == 2 && kind == thriftList: // schema: the root, and a row for each column
			t.list(func(kind byte) {
				if c, leaf := t.schema(kind); leaf {
					s.columns = append(s.columns, c)
				}
			})
		case id == 3 && kind == thriftI64:
			s.rows = t.number()
		default:
			return false
		}
		return true
	}, 0)
	if t.bad || s.rows < 0 || len(s.columns) == 0 || len(s.columns) > maxFields {
		return errShape
	}
	return nil
}

// Kinds of values in Thrift's compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

// physical and converted name the types of columns as pandas does (Type and ConvertedType of parquet.thrift).
var (
	physical  = []string{"bool", "int32", "int64", "timestamp", "float32", "float64", "binary", "binary"}
	converted = map[int64]string{0: "text", 4: "text", 5: "decimal", 6: "date", 7: "time", 8: "time", 9: "timestamp",
		10: "timestamp", 11: "uint8", 12: "uint16", 13: "uint32", 14: "uint64", 15: "int8", 16: "int16", 19: "json"}
)

// thrift reads one message. After a mistake it is bad, and every read gives zero.
type thrift struct {
	b   []byte
	bad bool
}

func (t *thrift) fail() { t.b, t.bad = nil, true }

func (t *thrift) byte() byte {
	if len(t.b) == 0 {
		t.fail()
		return 0
	}
	c := t.b[0]
	t.b = t.b[1:]
	return c
}

func (t *thrift) unsigned() uint64 {
	n, size := binary.Uvarint(t.b)
	if size <= 0 {
		t.fail()
		return 0
	}
	t.b = t.b[size:]
	return n
}

func (t *thrift) number() int64 {
	n := t.unsigned()
	return int64(n>>1) ^ -int64(n&1)
}

func (t *thrift) binary() string {
	n := t.unsigned()
	if n > uint64(len(t.b)) {
		t.fail()
		return ""
	}
	s := string(t.b[:n])
	t.b = t.b[n:]
	return s
}

// fields calls f for each field of a struct. f reads the value, or returns false, and it is skipped.
func (t *thrift) fields(f func(id int16, kind byte) bool, depth int) {
	if depth > maxDepth {
		t.fail()
	}
	for id := int16(0); !t.bad; {
		head := t.byte()
		if head == 0 {
			return
		}
		if head>>4 == 0 {
			id = int16(t.number())
		} else {
			id += int16(head >> 4)
		}
		if !f(id, head&15) {
			t.skip(head&15, depth+1)
		}
	}
}

// list calls f for each entry, which reads it.
func (t *thrift) list(f func(kind byte)) {
	head := t.byte()
	n := uint64(head >> 4)
	if n == 15 {
		n = t.unsigned()
	}
	if n > maxEntries {
		t.fail()
	}
	for range n {
		if t.bad {
			return
		}
		f(head & 15)
	}
}

// skip reads over a value.
func (t *thrift) skip(kind byte, depth int) {
	if depth > maxDepth {
		t.fail()
	}
	switch kind {
	case thriftTrue, thriftFalse:
	case thriftByte:
		t.byte()
	case thriftI16, thriftI32, thriftI64:
		t.unsigned()
	case thriftDouble:
		for range 8 {
			t.byte()
		}
	case thriftBinary:
		t.binary()
	case thriftList, thriftSet:
		t.list(func(kind byte) { t.entry(kind, depth) })
	case thriftMap:
		n := t.unsigned()
		if n == 0 {
			return
		}
		kinds := t.byte()
		for range min(n, maxEntries) {
			if t.bad {
				return
			}
			t.entry(kinds>>4, depth)
			t.entry(kinds&15, depth)
		}
	case thriftStruct:
		t.fields(func(int16, byte) bool { return false }, depth)
	default:
		t.fail()
	}
}

// entry reads over an entry of a list or a map, in which a boolean takes a byte.
func (t *thrift) entry(kind byte, depth int) {
	if kind == thriftTrue || kind == thriftFalse {
		t.byte()
		return
	}
	t.skip(kind, depth+1)
}

// schema reads one SchemaElement. leaf is false for the root and other groups.
func (t *thrift) schema(kind byte) (c column, leaf bool) {
	if kind != thriftStruct {
		t.fail()
		return c, false
	}
	basic, said := int64(-1), int64(-1)
	t.fields(func(id int16, kind byte) bool {
		switch {
		case id == 1 && kind == thriftI32:
			basic = t.number()
		case id == 4 && kind == thriftBinary:
			c.name = t.binary()
		case id == 6 && kind == thriftI32:
			said = t.number()
		default:
			return false
		}
		return true
	}, 1)
	if !utf8.ValidString(c.name) || basic >= int64(len(physical)) {
		t.fail()
	}
	if t.bad || basic < 0 {
		return c, false
	}
	c.kind = physical[basic]
	if name := converted[said]; name != "" {
		c.kind = name
	}
	return c, true
}
