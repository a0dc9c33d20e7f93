package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"waldo/internal/frontend/mcpserver/web"
	"waldo/internal/model/call"
)

// The bounds of proofs of possession.
const (
	proofAge  = time.Minute // between the clocks
	maxProof  = 4 << 10     // bytes of one
	maxProofs = 1 << 16     // remembered ones
	mostEach  = 1 << 13     // of one principal
	fewEach   = 1 << 6      // of one principal, which have room whatever others have
)

// Proofs verifies proofs of possession (RFC 9449 §4.3). Each is taken once.
type Proofs struct {
	// Shared takes an id for all processes until a time, and reports whether it is new; nil: this is the only process.
	Shared func(ctx context.Context, id string, until time.Time) (fresh bool, err error)

	mu    sync.Mutex
	since time.Time                               // older ones can have been used in another process
	seen  map[call.Principal]map[string]time.Time // when the proof of an id is too old
	n     int                                     // of all principals
	swept time.Time                               // when those that are too old were last removed
}

// Verify returns the proof of a principal's request, the zero Proof for none, or the answer to a request whose proof
// does not hold. gateway is its URL as clients know it, or empty.
func (p *Proofs) Verify(who call.Principal, r *http.Request, gateway string) (call.Proof, *web.Refusal) {
	given := r.Header.Values("DPoP")
	if len(given) == 0 {
		return call.Proof{}, nil
	}
	out, err := p.verify(who, given, r, gateway, time.Now())
	if err != nil {
		return call.Proof{}, &web.Refusal{Status: http.StatusUnauthorized,
			Challenge: `DPoP error="invalid_dpop_proof", algs="ES256"`,
			Why:       "the proof of possession does not hold: " + err.Error()}
	}
	return out, nil
}

func (p *Proofs) verify(
	who call.Principal, given []string, r *http.Request, gateway string, now time.Time,
) (out call.Proof, err error) {
	if len(given) != 1 || len(given[0]) > maxProof {
		return out, errors.New("it must be one header of at most 4096 bytes")
	}
	signed, err := jose.ParseSignedCompact(given[0], []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return out, errors.New("it must be a JWT of ES256")
	}
	h := signed.Signatures[0].Protected
	kind, _ := h.ExtraHeaders[jose.HeaderType].(string)
	if kind != "dpop+jwt" || h.JSONWebKey == nil || !h.JSONWebKey.IsPublic() {
		return out, errors.New("its header must have typ dpop+jwt and a public jwk")
	}
	if _, is := h.JSONWebKey.Key.(*ecdsa.PublicKey); !is {
		return out, errors.New("its jwk must be of ES256")
	}
	body, err := signed.Verify(h.JSONWebKey.Key)
	if err != nil {
		return out, errors.New("its signature does not fit its jwk")
	}
	var c struct {
		ID     string `json:"jti"`
		Method string `json:"htm"`
		URL    string `json:"htu"`
		At     int64  `json:"iat"`
		Token  string `json:"ath"`
	}
	at := func() time.Time { return time.Unix(c.At, 0) }
	switch err := json.Unmarshal(body, &c); {
	case err != nil || c.ID == "" || len(c.ID) > 256 || c.Token == "":
		return out, errors.New("jti, htm, htu, iat and ath must be there")
	case c.Method != r.Method || !here(c.URL, r, gateway):
		return out, errors.New("htm and htu are of another request")
	case at().Before(now.Add(-proofAge)) || at().After(now.Add(proofAge)):
		return out, errors.New("iat is more than a minute off")
	}
	sum, err := h.JSONWebKey.Thumbprint(crypto.SHA256)
	if err != nil {
		return out, errors.New("its jwk has no thumbprint")
	}
	out = call.Proof{Key: base64.RawURLEncoding.EncodeToString(sum), Token: c.Token}
	id := out.Key + " " + c.ID
	if err := p.once(who, id, at(), now); err != nil || p.Shared == nil {
		return out, err
	}
	switch fresh, err := p.Shared(r.Context(), id, at().Add(2*proofAge)); {
	case err != nil:
		return out, errors.New("whether it was used cannot be read now; try again later")
	case !fresh:
		return out, errors.New("it was used before")
	}
	return out, nil
}

// here reports whether a URL without query and fragment is that of the request, at this host or that of the gateway.
func here(text string, r *http.Request, gateway string) bool {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.EscapedPath() != r.URL.EscapedPath() {
		return false
	}
	known, err := url.Parse(gateway)
	return u.Scheme == "http" && u.Host == r.Host || err == nil && known.Host != "" && u.Scheme == known.Scheme &&
		u.Host == known.Host
}

// once takes an id of a principal, and refuses it the next time. A token belongs to one principal.
func (p *Proofs) once(who call.Principal, id string, at, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if full := len(p.seen[who]) >= mostEach || p.n >= maxProofs; full && now.Sub(p.swept).Abs() >= time.Second {
		p.sweep(now)
	}
	own := p.seen[who]
	switch over, used := own[id]; {
	case used && !now.After(over):
		return errors.New("it was used before")
	case at.Before(p.since.Truncate(time.Second)):
		return errors.New("it is older than this process, in which alone it can be used")
	case len(own) >= mostEach, p.n >= maxProofs && len(own) >= fewEach:
		return errors.New("too many proofs were used in the last minutes; try again later")
	case own == nil:
		own = map[string]time.Time{}
		p.seen[who] = own
	}
	own[id] = at.Add(2 * proofAge)
	p.n++
	return nil
}

// sweep removes proofs that are too old to be taken again.
func (p *Proofs) sweep(now time.Time) {
	p.n, p.swept = 0, now
	for who, own := range p.seen {
		maps.DeleteFunc(own, func(_ string, over time.Time) bool { return now.After(over) })
		if p.n += len(own); len(own) == 0 {
			delete(p.seen, who)
		}
	}
}

// NewProofs takes no proof that was made before now.
func NewProofs(now time.Time) *Proofs {
	return &Proofs{since: now, seen: map[call.Principal]map[string]time.Time{}}
}
