package safefile

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// encoded begins the text of a name that is not UTF-8: no name has a NUL.
const encoded = "\x00"

// Text returns the name of a file as JSON can hold it: two names never have one text.
func Text(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return encoded + base64.StdEncoding.EncodeToString([]byte(name))
}

// Name returns the name that a text of Text stands for.
func Name(text string) string {
	if bytes, is := strings.CutPrefix(text, encoded); is {
		if name, err := base64.StdEncoding.DecodeString(bytes); err == nil {
			return string(name)
		}
	}
	return text
}
