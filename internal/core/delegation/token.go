package delegation

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"strings"

	"waldo/internal/model/call"
	"waldo/internal/model/id"
	"waldo/internal/protocol/strictjson"
)

// prefix begins every token.
const prefix = "waldo_"

var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newToken makes a token: the id of its delegation and 256 random bits.
func newToken(delegation string) string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return prefix + delegation + "_" + letters.EncodeToString(b[:])
}

// ParseToken returns the id that a token names. It refuses any other form than that of newToken.
func ParseToken(token string) (delegation string, why *call.Reason) {
	why = &call.Reason{Code: "delegation.malformed", Text: "this is not the token of a delegation"}
	rest, ok := strings.CutPrefix(token, prefix)
	at := strings.LastIndexByte(rest, '_')
	if !ok || at < 0 || !id.Is(id.Delegation, rest[:at]) {
		return "", why
	}
	secret, err := letters.DecodeString(rest[at+1:])
	if err != nil || len(secret) != 32 || letters.EncodeToString(secret) != rest[at+1:] {
		return "", why
	}
	return rest[:at], nil
}

func digestOf(token string) string { return strictjson.Digest([]byte(token)) }

// tokenHash is a token as a proof names it (RFC 9449 §4.2, ath).
func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// proven reports whether the token of a delegation is bound to no key, or came with a proof of it.
func (l Link) proven(token string, p call.Proof) bool {
	return l.Key == "" || p.Key == l.Key && subtle.ConstantTimeCompare([]byte(p.Token), []byte(tokenHash(token))) == 1
}

// fits reports whether a token is the one of the delegation.
func (l Link) fits(token string) bool {
	return subtle.ConstantTimeCompare([]byte(digestOf(token)), []byte(l.digest)) == 1
}
