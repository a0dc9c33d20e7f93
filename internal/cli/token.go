package cli

import "os"

// Token is the token of a delegation that a flag or $WALDO_DELEGATION names. An empty one is named too, so that a failed
// waldo delegate does not give a child all authority.
type Token struct{ text *string }

// String returns nothing: the token is a secret.
func (t *Token) String() string { return "" }

// Set takes the text of the flag.
func (t *Token) Set(text string) error {
	t.text = &text
	return nil
}

// Type is the kind of value that the flag shows where it has no name.
func (t *Token) Type() string { return "string" }

// Named returns the token of the flag, or of the environment; nil: none is named.
func (t *Token) Named() *string {
	if text, set := os.LookupEnv("WALDO_DELEGATION"); t.text == nil && set {
		return &text
	}
	return t.text
}
