package oauth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// newKey makes a key for ES256, which every issuer with DPoP or private_key_jwt takes.
func newKey() (*jose.JSONWebKey, error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return &jose.JSONWebKey{Key: k, Algorithm: string(jose.ES256)}, nil
}

// thumbprint names a key (RFC 7638), as in dpop_jkt.
func thumbprint(k *jose.JSONWebKey) string {
	sum, _ := k.Thumbprint(crypto.SHA256) // fails for unknown kinds of keys alone
	return base64.RawURLEncoding.EncodeToString(sum)
}

// sign writes claims as a signed JWT of a type.
func sign(claims any, key jose.SigningKey, kind string, embed bool) (string, error) {
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{EmbedJWK: embed}).WithType(jose.ContentType(kind)))
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(body)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// proof says that one request is made by the holder of a key (RFC 9449 §4.2).
type proof struct {
	ID     string `json:"jti"`
	Method string `json:"htm"`
	URL    string `json:"htu"`
	At     int64  `json:"iat"`
	Token  string `json:"ath,omitempty"`
	Nonce  string `json:"nonce,omitempty"`
}

// proofOf describes a request. token is the access token that it carries; "" for the token endpoint.
func proofOf(req *http.Request, token, nonce string) proof {
	u := url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Path: req.URL.Path, RawPath: req.URL.RawPath}
	if u.Path == "" {
		u.Path = "/"
	}
	p := proof{ID: rand.Text(), Method: req.Method, URL: u.String(), At: time.Now().Unix(), Nonce: nonce}
	if token != "" {
		sum := sha256.Sum256([]byte(token))
		p.Token = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return p
}

// signed returns the proof as it is sent, with the public key in its header.
func (p proof) signed(key *jose.JSONWebKey) (string, error) {
	return sign(p, jose.SigningKey{Algorithm: jose.ES256, Key: key.Key}, "dpop+jwt", true)
}

// prove makes a request with a proof. It makes it once more if the server refuses the token for want of a nonce (RFC
// 9449 §9).
func (c *Client) prove(req *http.Request, token string, key *jose.JSONWebKey) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	origin := req.URL.Scheme + "://" + req.URL.Host
	for try := 0; ; try++ {
		known, _ := c.nonces.Load(origin)
		nonce, _ := known.(string)
		text, err := proofOf(req, token, nonce).signed(key)
		if err != nil {
			return nil, err
		}
		one := req.Clone(req.Context())
		if req.GetBody != nil {
			if one.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
		one.Header.Set("DPoP", text)
		if token != "" {
			one.Header.Set("Authorization", "DPoP "+token)
		}
		resp, err := c.HTTP.RoundTrip(one)
		if err != nil {
			return nil, err
		}
		fresh := resp.Header.Get("DPoP-Nonce")
		if scope(fresh) { // of the same characters (RFC 9449 §8.1)
			c.nonces.Store(origin, fresh)
		}
		if try > 0 || !scope(fresh) || req.Body != nil && req.GetBody == nil || resp.StatusCode != http.StatusUnauthorized ||
			challenged(resp.Header).code != "use_dpop_nonce" {
			return resp, nil
		}
		_ = resp.Body.Close()
	}
}

// proving is the transport of requests to the server.
type proving struct{ c *Client }

// Transport returns the transport of requests to the server: where the login is bound to a key, a token goes with a
// proof instead of as a bearer token, on every hop.
func (c *Client) Transport() http.RoundTripper { return proving{c} }

// RoundTrip satisfies http.RoundTripper.
func (p proving) RoundTrip(req *http.Request) (*http.Response, error) {
	token, is := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	p.c.mu.Lock()
	key := p.c.kept.Key
	p.c.mu.Unlock()
	if !is || key == nil {
		return p.c.HTTP.RoundTrip(req)
	}
	return p.c.prove(req, token, key)
}

// assertion is a JWT that says who waldo is to its issuer (RFC 7523 §3). Its audience is the issuer alone, so that a
// token endpoint of another issuer cannot use it.
func (c *Client) assertion() (string, error) {
	key := c.kept.Client.Key
	if c.Config.Key != nil {
		text, err := c.Config.Key()
		if err != nil {
			return "", err
		}
		if key, err = privateKey(text); err != nil {
			return "", err
		}
	}
	if key == nil {
		return "", errors.New("the client has no key")
	}
	id, now := c.kept.Client.ID, time.Now()
	return sign(map[string]any{
		"iss": id, "sub": id, "aud": c.kept.Issuer, "jti": rand.Text(), "iat": now.Unix(), "exp": now.Add(time.Minute).Unix(),
	},
		jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key}, "JWT", false)
}

// privateKey reads a client's key: PKCS #8 in PEM, or a JSON Web Key.
func privateKey(text string) (*jose.JSONWebKey, error) {
	var k jose.JSONWebKey
	if block, _ := pem.Decode([]byte(text)); block != nil {
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, errors.New("the client's key is not PKCS #8")
		}
		k.Key = key
	} else if k.UnmarshalJSON([]byte(text)) != nil {
		return nil, errors.New("the client's key is neither PEM nor a JSON Web Key")
	}
	var fit []jose.SignatureAlgorithm
	switch key := k.Key.(type) {
	case *ecdsa.PrivateKey:
		fit = map[elliptic.Curve][]jose.SignatureAlgorithm{
			elliptic.P256(): {jose.ES256}, elliptic.P384(): {jose.ES384}, elliptic.P521(): {jose.ES512},
		}[key.Curve]
	case ed25519.PrivateKey:
		fit = []jose.SignatureAlgorithm{jose.EdDSA}
	case *rsa.PrivateKey:
		if key.N.BitLen() >= 2048 {
			fit = []jose.SignatureAlgorithm{jose.RS256, jose.PS256}
		}
	}
	switch {
	case len(fit) == 0:
		return nil, errors.New("the client's key is not a private key of ECDSA, Ed25519 or RSA with 2,048 bits")
	case k.Algorithm == "":
		k.Algorithm = string(fit[0])
	case !slices.Contains(fit, jose.SignatureAlgorithm(k.Algorithm)):
		return nil, errors.New("the client's key names an algorithm that is not one of its kind")
	}
	return &k, nil
}
