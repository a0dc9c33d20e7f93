package strictjson

import "github.com/go-json-experiment/json/jsontext"

// AppendText appends a text as a JSON string; bytes that are no UTF-8 become U+FFFD.
func AppendText(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}
