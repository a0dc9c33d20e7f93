package session

import (
	"fmt"
	"strings"
	"sync"
)

// MaxValue is how many bytes one tokenised value may have.
const MaxValue = 1 << 10

// Vault maps values to tokens and back. It is safe for concurrent use. The zero Vault is full.
type Vault struct {
	mu     sync.Mutex
	max    int
	tokens map[string]string // class and value to token
	values map[string]string // token to value, as first seen
	last   map[string]int    // the highest number of each class
}

// NewVault returns a vault for at most max values.
func NewVault(max int) *Vault {
	return &Vault{max: max, tokens: map[string]string{}, values: map[string]string{}, last: map[string]int{}}
}

// Token returns the token of a value, "[EMAIL_1]" for the class EMAIL; the same value has the same
// token. E-mail addresses that differ only in case are one value, restored as first seen. It
// reports false for a value that is empty, longer than MaxValue or one too many.
func (v *Vault) Token(class, value string) (string, bool) {
	if value == "" || len(value) > MaxValue {
		return "", false
	}
	key := keyOf(class, value)
	v.mu.Lock()
	defer v.mu.Unlock()
	if t, ok := v.tokens[key]; ok {
		return t, true
	}
	if len(v.values) >= v.max {
		return "", false
	}
	v.last[class]++
	t := fmt.Sprintf("[%s_%d]", class, v.last[class])
	v.tokens[key], v.values[t] = t, value
	return t, true
}

// keyOf returns the key of a value: addresses of e-mail have no case.
func keyOf(class, value string) string {
	if class == "EMAIL" {
		value = strings.ToLower(value)
	}
	return class + " " + value
}

// Wipe forgets every value. From then on the vault gives no token and restores none, also to a call that is under way.
func (v *Vault) Wipe() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.tokens)
	clear(v.values)
	v.max = 0
}

// Value returns the value of a token, and false if the vault has none.
func (v *Vault) Value(token string) (string, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.values[token]
	return s, ok
}
