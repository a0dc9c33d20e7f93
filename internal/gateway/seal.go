package gateway

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"waldo/internal/call"
	"waldo/internal/jsonrpc"
)

// sealer makes the requestState of parked calls: XChaCha20-Poly1305 under a key that is drawn when
// waldo starts and never leaves it.
type sealer struct {
	key [chacha20poly1305.KeySize]byte
}

func newSealer() *sealer {
	s := &sealer{}
	_, _ = rand.Read(s.key[:])
	return s
}

// state is what a requestState says: which parked call it continues, and what the retry must be.
type state struct {
	Round     string         `json:"r"` // one question of one parked call
	Principal call.Principal `json:"p"`
	Request   string         `json:"q"` // digest of the method and its parameters
	Expires   int64          `json:"e"` // milliseconds since 1970
}

const forState = "waldo requestState v1"

// maxState is how long a requestState may be.
const maxState = 4 << 10

func (s *sealer) seal(st state) string {
	aead, _ := chacha20poly1305.NewX(s.key[:]) // the key has the right size
	nonce := make([]byte, aead.NonceSize(), 512)
	_, _ = rand.Read(nonce)
	b, _ := json.Marshal(st) // strings and a number encode
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nonce, nonce, b, []byte(forState)))
}

// open returns what a requestState says, or false for one that was not made here as it is.
func (s *sealer) open(text string) (state, bool) {
	if len(text) > maxState {
		return state{}, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	aead, _ := chacha20poly1305.NewX(s.key[:])
	if err != nil || len(b) < aead.NonceSize() {
		return state{}, false
	}
	plain, err := aead.Open(nil, b[:aead.NonceSize()], b[aead.NonceSize():], []byte(forState))
	var st state
	if err != nil || json.Unmarshal(plain, &st) != nil {
		return state{}, false
	}
	return st, true
}

// check holds a requestState against the request that it came with.
func (s *sealer) check(text string, who call.Principal, request string, now time.Time) (state, *jsonrpc.Error) {
	st, ok := s.open(text)
	switch {
	case !ok:
		return st, stateError("state.forged", "the requestState was not made here, or not as it is")
	case st.Principal != who:
		return st, stateError("state.principal", "the requestState belongs to somebody else")
	case st.Request != request:
		return st, stateError("state.request", "the requestState belongs to another request: make the same one again")
	case now.UnixMilli() >= st.Expires:
		return st, stateError("state.expired", "the question is no longer open: make the request anew, without requestState")
	}
	return st, nil
}

func stateError(code, text string) *jsonrpc.Error {
	e := jsonrpc.Errorf(jsonrpc.CodeParams, "%s", text)
	if data, err := call.ArgsOf(map[string]string{"code": code}); err == nil {
		e.Data = data.Value()
	}
	return e
}
