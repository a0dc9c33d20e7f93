// Package passkey verifies WebAuthn credentials (passkeys) without a network or a state: a signature over one message
// whose digest was the challenge. So an answer in the log can be verified offline.
package passkey

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"

	"waldo/internal/protocol/strictjson"
)

// Credential is the public half of a passkey, bound to the one origin at which it was enrolled.
type Credential struct {
	Origin string `json:"origin"` // http://localhost:7677
	ID     []byte `json:"id"`
	Key    []byte `json:"key"` // COSE
}

// prefix begins the text of a credential; no Ed25519 key in hexadecimal has it.
const prefix = "passkey:v1:"

// Limits on outside input, in bytes.
const (
	maxText      = 8 << 10
	maxAssertion = 16 << 10
)

// Algorithms are the COSE algorithms that waldo takes: ES256, EdDSA and RS256.
var Algorithms = []int64{int64(webauthncose.AlgES256), int64(webauthncose.AlgEdDSA), int64(webauthncose.AlgRS256)}

var errText = errors.New("not a passkey")

// Text returns the credential as one line, which Parse reads.
func (c Credential) Text() string {
	b, err := json.Marshal(c)
	if err != nil {
		return ""
	}
	return prefix + base64.RawURLEncoding.EncodeToString(b)
}

// Is reports whether a key's text is that of a passkey, valid or not.
func Is(text string) bool { return strings.HasPrefix(text, prefix) }

// Parse reads a credential. Each credential has one text.
func Parse(text string) (Credential, error) {
	enc, ok := strings.CutPrefix(text, prefix)
	if !ok || len(text) > maxText {
		return Credential{}, errText
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(enc)
	if err != nil {
		return Credential{}, errText
	}
	var c Credential
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil || c.Text() != text || len(c.ID) == 0 || len(c.Key) == 0 {
		return Credential{}, errText
	}
	if _, err := RelyingParty(c.Origin); err != nil {
		return Credential{}, err
	}
	return c, nil
}

// RelyingParty returns the relying party id of an origin: its host. Browsers allow a name over https, and localhost
// over http. They allow no address.
func RelyingParty(origin string) (string, error) {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme+"://"+u.Host != origin || u.Hostname() == "" || strings.ToLower(origin) != origin {
		return "", fmt.Errorf("passkey: %q is not an origin", origin)
	}
	host := u.Hostname()
	if net.ParseIP(host) != nil {
		return "", fmt.Errorf("passkey: browsers make no passkey for the address %s: open the console by name", host)
	}
	local := host == "localhost" || strings.HasSuffix(host, ".localhost")
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return "", fmt.Errorf("passkey: browsers make a passkey over https, or at localhost: not at %s", origin)
	}
	return host, nil
}

// Challenge returns the challenge for a message: the SHA-256 of it, in base64url.
func Challenge(message []byte) string {
	d := sha256.Sum256(message)
	return base64.RawURLEncoding.EncodeToString(d[:])
}

// assertion is the form in which an assertion is stored.
type assertion struct {
	ID       string   `json:"id"`
	RawID    string   `json:"rawId"`
	Type     string   `json:"type"`
	Response response `json:"response"`
}

type response struct {
	ClientData        string `json:"clientDataJSON"`
	AuthenticatorData string `json:"authenticatorData"`
	Signature         string `json:"signature"`
}

// Compact takes a browser's assertion (PublicKeyCredential.toJSON) and returns the parts that a signature needs.
func Compact(fromBrowser []byte) ([]byte, error) {
	p, err := parseAssertion(fromBrowser)
	if err != nil {
		return nil, err
	}
	enc := base64.RawURLEncoding.EncodeToString
	r := p.Raw.AssertionResponse
	return json.Marshal(assertion{
		p.ID, p.ID, "public-key", response{enc(r.ClientDataJSON), enc(r.AuthenticatorData), enc(r.Signature)},
	})
}

func parseAssertion(b []byte) (*protocol.ParsedCredentialAssertionData, error) {
	if len(b) > maxAssertion {
		return nil, fmt.Errorf("passkey: the assertion has more than %d bytes", maxAssertion)
	}
	if _, err := strictjson.Parse(b); err != nil { // no member twice
		return nil, fmt.Errorf("passkey: %w", err)
	}
	p, err := protocol.ParseCredentialRequestResponseBytes(b)
	if err != nil {
		return nil, fmt.Errorf("passkey: %s", detail(err))
	}
	if _, err := strictjson.Parse(p.Raw.AssertionResponse.ClientDataJSON); err != nil {
		return nil, fmt.Errorf("passkey: client data: %w", err)
	}
	return p, exactNames(p.Raw.AssertionResponse.ClientDataJSON)
}

// exactNames refuses client data with a member that differs from a known one by case alone: encoding/json takes
// either.
func exactNames(clientData []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(clientData, &members); err != nil {
		return fmt.Errorf("passkey: client data: %w", err)
	}
	for name := range members {
		for _, known := range []string{"type", "challenge", "origin", "crossOrigin", "topOrigin", "tokenBinding"} {
			if name != known && strings.EqualFold(name, known) {
				return fmt.Errorf("passkey: client data: the member %q is no %q", name, known)
			}
		}
	}
	return nil
}

// Verify checks an assertion, as Compact returns it, over a message. The authenticator must have verified its user,
// at the credential's origin, in a page that no other site framed.
func (c Credential) Verify(message, assertion []byte) error {
	rp, err := RelyingParty(c.Origin)
	if err != nil {
		return err
	}
	p, err := parseAssertion(assertion)
	if err != nil {
		return err
	}
	if !bytes.Equal(p.RawID, c.ID) {
		return errors.New("passkey: the assertion is of another credential")
	}
	if p.Response.CollectedClientData.Origin != c.Origin {
		return fmt.Errorf("passkey: signed at %.200q, and enrolled at %s", p.Response.CollectedClientData.Origin, c.Origin)
	}
	err = p.Verify(Challenge(message), rp, "", []string{c.Origin}, nil, nil, protocol.TopOriginExplicitVerificationMode,
		false, true, true, c.Key, protocol.SignaturePolicy{})
	if err != nil {
		return fmt.Errorf("passkey: %s", detail(err))
	}
	return nil
}

// Register reads a browser's new credential (PublicKeyCredential.toJSON) made for a challenge at an origin. It asks
// for no attestation: which device holds the key, waldo does not know.
func Register(fromBrowser []byte, challenge, origin string) (Credential, error) {
	rp, err := RelyingParty(origin)
	if err != nil {
		return Credential{}, err
	}
	if len(fromBrowser) > 4*maxAssertion {
		return Credential{}, errors.New("passkey: the registration is too long")
	}
	p, err := protocol.ParseCredentialCreationResponseBytes(fromBrowser)
	if err != nil {
		return Credential{}, fmt.Errorf("passkey: %s", detail(err))
	}
	if p.Response.CollectedClientData.Origin != origin {
		return Credential{}, fmt.Errorf("passkey: made at %.200q, and wanted at %s",
			p.Response.CollectedClientData.Origin, origin)
	}
	var algs []protocol.CredentialParameter
	for _, a := range Algorithms {
		algs = append(algs, protocol.CredentialParameter{
			Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.COSEAlgorithmIdentifier(a),
		})
	}
	_, err = p.Verify(challenge, rp, []string{origin}, nil, nil, protocol.TopOriginExplicitVerificationMode, false, true,
		true, nil, algs, protocol.AttestationPolicy{}, protocol.SignaturePolicy{})
	if err != nil {
		return Credential{}, fmt.Errorf("passkey: %s", detail(err))
	}
	c := Credential{Origin: origin, ID: p.RawID, Key: p.Response.AttestationObject.AuthData.AttData.CredentialPublicKey}
	if _, err := Parse(c.Text()); err != nil {
		return Credential{}, err
	}
	return c, nil
}

// detail returns the message of the library, for a person.
func detail(err error) string {
	var e *protocol.Error
	if errors.As(err, &e) {
		return strings.TrimSpace(e.Details + " " + e.DevInfo)
	}
	return err.Error()
}

// ID64 returns the credential's id in base64url, as browsers write it.
func (c Credential) ID64() string { return base64.RawURLEncoding.EncodeToString(c.ID) }

// Signed reports whether a signature in base64, as an answer in the log has it, is a passkey's assertion.
func Signed(signature string) bool {
	b, err := base64.StdEncoding.DecodeString(signature)
	return err == nil && bytes.HasPrefix(b, []byte(`{"id":"`))
}
