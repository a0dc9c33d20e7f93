package main

import (
	"bytes"
	"testing"
)

func TestStrip(t *testing.T) {
	head := []byte("\x00asm\x01\x00\x00\x00")
	module := append(bytes.Clone(head), "\x00\x03\x01ab\x01\x01c\x00\x00"...)
	got, err := strip(module)
	if want := append(bytes.Clone(head), "\x01\x01c"...); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q %v", got, err)
	}
	for _, bad := range []string{"", "\x00asm", string(head) + "\x00", string(head) + "\x01\x05ab",
		string(head) + "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		if got, err := strip([]byte(bad)); err == nil {
			t.Errorf("%q: %q", bad, got)
		}
	}
}
