package egress

import (
	"bytes"
	"slices"
	"testing"
)

// vec is bytes behind their length in n bytes.
func vec(n int, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	out := make([]byte, n)
	for i := range n {
		out[i] = byte(len(body) >> (8 * (n - 1 - i)))
	}
	return append(out, body...)
}

// TestHelloIsReadOneWay: a ClientHello that two parsers could read differently is refused.
func TestHelloIsReadOneWay(t *testing.T) {
	const host = "api.example.com"
	name := func(form byte, text string) []byte { return append([]byte{form}, vec(2, []byte(text))...) }
	ext := func(kind byte, body []byte) []byte { return append([]byte{0, kind}, vec(2, body)...) }
	hello := func(parts ...[]byte) []byte {
		return slices.Concat(make([]byte, 34), vec(1), vec(2, []byte{0x13, 1}), vec(1, []byte{0}), vec(2, parts...))
	}
	good := ext(0, vec(2, name(0, host)))
	for _, row := range []struct {
		why   string
		hello []byte
		good  bool
	}{
		{"control", hello(good), true},
		{"control: beside another extension", hello(ext(16, []byte("x")), good), true},
		{"bytes behind the extensions", append(hello(good), 0), false},
		{"an end within the extensions", hello(good)[:len(hello(good))-1], false},
		{"an end within the ciphers", make([]byte, 36), false},
		{"an extension that is cut off", hello(good, []byte{0, 16, 0, 9}), false},
		{"bytes behind the list of names", hello(ext(0, append(vec(2, name(0, host)), 0))), false},
		{"a second name", hello(ext(0, vec(2, name(0, host), name(0, "evil.example.com")))), false},
		{"a name of another form", hello(ext(0, vec(2, name(1, host)))), false},
		{"a name that is cut off", hello(ext(0, vec(2, []byte{0, 0, 9, 'a'}))), false},
		{"a list that is cut off", hello(ext(0, []byte{0, 9, 0})), false},
	} {
		got, why := helloName(row.hello)
		if (why == nil && got == host) != row.good || why != nil && why.Code != "egress.tls" {
			t.Errorf("%s: %q %v", row.why, got, why)
		}
	}
	message := append([]byte{clientHello}, vec(3, hello(good))...)
	record := func(kind, version byte, body []byte) []byte { return append([]byte{kind, version, 1}, vec(2, body)...) }
	large := append([]byte{clientHello}, vec(3, make([]byte, maxHello+1))...)
	for _, row := range []struct {
		why  string
		b    []byte
		good bool
	}{
		{"control", record(recordHandshake, 3, message), true},
		{
			"control: in two records", slices.Concat(record(recordHandshake, 3, message[:9]),
				record(recordHandshake, 3, message[9:])), true,
		},
		{"another version", record(recordHandshake, 2, message), false},
		{"another record", record(23, 3, message), false},
		{"another message", record(recordHandshake, 3, append([]byte{2}, message[1:]...)), false},
		{"an empty record first", append(record(recordHandshake, 3, nil), record(recordHandshake, 3, message)...), false},
		{
			"a record that is too long", record(recordHandshake, 3, slices.Concat(message, make([]byte, 1<<14+1-len(message)))),
			false,
		},
		{"control: the longest record",
			record(recordHandshake, 3, slices.Concat(message, make([]byte, 1<<14-len(message)))), true},
		{"a message that is too long", record(recordHandshake, 3, large[:100]), false},
	} {
		got, more, why := serverName(row.b)
		if (why == nil && got == host && !more) != row.good || why != nil && why.Code != "egress.tls" ||
			why == nil && !row.good {
			t.Errorf("%s: %q %v %v", row.why, got, more, why)
		}
	}
	slow := bytes.Repeat(record(recordHandshake, 3, []byte{0}), 3) // a message of no known length
	if _, more, why := serverName(slow); !more || why != nil {
		t.Errorf("control: %v %v", more, why)
	}
	endless := record(recordHandshake, 3, append([]byte{clientHello}, vec(3, make([]byte, maxHello))[:9]...))
	for len(endless) <= 2*maxHello {
		endless = append(endless, record(recordHandshake, 3, []byte{0})...)
	}
	if _, more, why := serverName(endless); why == nil {
		t.Errorf("a ClientHello without an end: %v", more)
	}
}
