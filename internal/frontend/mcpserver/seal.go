package mcpserver

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/jsonrpc"
)

// sealer makes the requestState of parked calls: XChaCha20-Poly1305 under a key that is drawn when
// waldo starts and never leaves it. Behind a dot comes the same once more under a key that outlives this
// waldo; that opens no call, and tells a later one what there was.
type sealer struct {
	key  [chacha20poly1305.KeySize]byte
	kept *[chacha20poly1305.KeySize]byte // nil without a persistent key
	run  string                          // this waldo, among all that have that key
}

func newSealer(kept *[32]byte) *sealer {
	s := &sealer{kept: kept, run: rand.Text()}
	_, _ = rand.Read(s.key[:])
	return s
}

// state is the content of a requestState: the suspended call that it continues, and the required retry.
type state struct {
	Round     string           `json:"r"` // one question of one parked call
	Principal call.Principal   `json:"p"`
	Request   string           `json:"q"`           // digest of the method and its parameters
	Expires   int64            `json:"e"`           // milliseconds since 1970
	Call      string           `json:"c"`           // its id
	Run       string           `json:"b,omitempty"` // of a past one: the waldo that made it
	Effect    facts.SideEffect `json:"s"`           // none, where its contract lets it have no other
}

// Purposes of a sealed text.
const (
	forState = "waldo requestState v2 "
	forPast  = "waldo past requestState v2"
)

// maxState is how long a requestState may be.
const maxState = 4 << 10

// pair makes a requestState of two halves: one for this process, one for a later process. Each half is bound to the
// other.
func (s *sealer) pair(st state) string {
	if s.kept == nil {
		return seal(&s.key, st, forState)
	}
	st.Run = s.run
	past := seal(s.kept, st, forPast)
	st.Run = ""
	return seal(&s.key, st, before(past)) + "." + past
}

// before is the purpose of the first half. It includes the other half, so neither half opens with another one.
func before(past string) string { return forState + past }

func seal(key *[chacha20poly1305.KeySize]byte, st state, use string) string {
	aead, _ := chacha20poly1305.NewX(key[:]) // the key has the right size
	nonce := make([]byte, aead.NonceSize(), 512)
	_, _ = rand.Read(nonce)
	b, _ := json.Marshal(st) // strings and numbers encode
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nonce, nonce, b, []byte(use)))
}

// open returns what a requestState says and whether it is a past one's, or false for one that was not
// made here as it is.
func (s *sealer) open(text string) (st state, past, ok bool) {
	if len(text) > maxState {
		return state{}, false, false
	}
	live, behind, _ := strings.Cut(text, ".")
	if st, ok = unseal(&s.key, live, before(behind)); ok || s.kept == nil {
		return st, false, ok
	}
	st, ok = unseal(s.kept, behind, forPast)
	ok = ok && st.Run != s.run // a text of this process opens only with its own key
	return st, ok, ok
}

func unseal(key *[chacha20poly1305.KeySize]byte, text, use string) (state, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	aead, _ := chacha20poly1305.NewX(key[:])
	if err != nil || len(b) < aead.NonceSize() {
		return state{}, false
	}
	plain, err := aead.Open(nil, b[:aead.NonceSize()], b[aead.NonceSize():], []byte(use))
	var st state
	if err != nil || json.Unmarshal(plain, &st) != nil {
		return state{}, false
	}
	return st, true
}

// check holds a requestState against the request that it came with, and reports whether it is a past one's.
func (s *sealer) check(
	text string, who call.Principal, request string, now time.Time,
) (st state, past bool, fault *jsonrpc.Error) {
	st, past, ok := s.open(text)
	switch {
	case !ok:
		fault = stateError("state.forged", "the requestState was not made here, or not as it is")
	case st.Principal != who:
		fault = stateError("state.principal", "the requestState belongs to somebody else")
	case st.Request != request:
		fault = stateError("state.request", "the requestState belongs to another request: make the same one again")
	case now.UnixMilli() >= st.Expires:
		fault = stateError("state.expired", "the question has expired: make the request anew, without requestState")
	}
	return st, past, fault
}

func stateError(code, text string) *jsonrpc.Error {
	e := jsonrpc.Errorf(jsonrpc.CodeParams, "%s", text)
	if data, err := call.ArgsOf(map[string]string{"code": code}); err == nil {
		e.Data = data.Value()
	}
	return e
}
