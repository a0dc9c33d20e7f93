package a2a

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/protocol/strictjson"
)

// Skill is a capability that a contract exposes (§4.4.5).
type Skill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	InputModes  []string `json:"inputModes,omitempty"`

	capability call.Capability
	input      strictjson.Value // JSON Schema of the arguments
}

// only returns the one argument of a skill that takes a text; empty: it takes more, or none.
func (s Skill) only() string {
	members, _ := s.input.Member("properties").Members()
	required, _ := s.input.Member("required").Elements()
	for name, v := range members {
		kind, _ := v.Member("type").Text()
		if len(required) == 1 {
			if first, _ := required[0].Text(); first == name && kind == "string" {
				return name
			}
		} else if len(members) == 1 && kind == "string" {
			return name
		}
	}
	return ""
}

// Arguments is the URI of waldo's extension of the agent card: the JSON Schemas of the arguments of its skills.
const Arguments = "urn:waldo:a2a:skill-arguments:1"

// keySlot is the name of the key in waldo's store that signs agent cards.
const keySlot = "a2a-card-key"

// Keys stores the key that signs agent cards. *secretstore.Store implements it.
type Keys interface {
	Has(name string) bool
	Get(name string) (secret.Value, error)
	Set(name string, v secret.Value) error
}

// signer signs agent cards with a key of this state directory, made at its first use.
type signer struct {
	keys Keys
	mu   sync.Mutex
	key  *ecdsa.PrivateKey
}

func (s *signer) private() (*ecdsa.PrivateKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key != nil {
		return s.key, nil
	}
	if !s.keys.Has(keySlot) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, err
		}
		if err := s.keys.Set(keySlot, secret.NewValue(base64.StdEncoding.EncodeToString(der))); err != nil {
			return nil, err
		}
	}
	v, err := s.keys.Get(keySlot) // what is stored: of two processes that made one, the last
	if err != nil {
		return nil, err
	}
	der, err := base64.StdEncoding.DecodeString(v.Reveal())
	if err != nil {
		return nil, fmt.Errorf("the secret %s is not a key", keySlot)
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	ec, ok := key.(*ecdsa.PrivateKey)
	if err != nil || !ok {
		return nil, fmt.Errorf("the secret %s is not a key", keySlot)
	}
	s.key = ec
	return ec, nil
}

// jwk returns the public key as a JSON Web Key, and its thumbprint (RFC 7638).
func jwk(k *ecdsa.PublicKey) (members map[string]string, thumbprint string, err error) {
	point, err := k.Bytes() // 4, X, Y
	if err != nil || len(point) != 65 {
		return nil, "", errors.Join(errors.New("the key is not of P-256"), err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	members = map[string]string{"kty": "EC", "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])}
	b, err := json.Marshal(members) // sorted by name, as RFC 7638 has them
	sum := sha256.Sum256(b)
	return members, b64(sum[:]), err
}

// sign returns a card with a signature (§8.4): a JSON Web Signature over its canonical form.
func (s *signer) sign(card map[string]any, jku string) ([]byte, error) {
	key, err := s.private()
	if err != nil {
		return nil, err
	}
	public, kid, err := jwk(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(card)
	if err != nil {
		return nil, err
	}
	v, err := strictjson.Parse(b)
	if err != nil {
		return nil, err
	}
	header, err := json.Marshal(map[string]string{"alg": "ES256", "typ": "JOSE", "kid": kid, "jku": jku})
	if err != nil {
		return nil, err
	}
	protected := base64.RawURLEncoding.EncodeToString(header)
	sum := sha256.Sum256([]byte(protected + "." + base64.RawURLEncoding.EncodeToString(v.Canonical())))
	r, t, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		return nil, err
	}
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	t.FillBytes(sig[32:])
	card["signatures"] = []map[string]any{{"protected": protected, "header": map[string]any{"jwk": public},
		"signature": base64.RawURLEncoding.EncodeToString(sig)}}
	return json.Marshal(card)
}

// keySet is the JSON Web Key Set that verifies the cards.
func (s *signer) keySet() ([]byte, error) {
	key, err := s.private()
	if err != nil {
		return nil, err
	}
	members, kid, err := jwk(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	members["kid"], members["use"], members["alg"] = kid, "sig", "ES256"
	return json.Marshal(map[string]any{"keys": []any{members}})
}

// cardOf is the agent card without its signature. The public one lists the skills that contracts expose; the extended
// one those that the principal can call, with the schemas of their arguments.
func cardOf(version, base string, g contract.Gateway, skills []Skill, extended bool) map[string]any {
	schemes, needs := security(g)
	capabilities := map[string]any{"streaming": true, "pushNotifications": true, "extendedAgentCard": true}
	listed := make([]Skill, 0, len(skills))
	schemas := map[string]any{}
	for _, s := range skills {
		listed = append(listed, s)
		schemas[s.ID] = s.input
	}
	if extended && len(schemas) > 0 {
		capabilities["extensions"] = []any{map[string]any{"uri": Arguments,
			"description": "The JSON Schemas of the arguments of skills", "params": schemas}}
	}
	card := map[string]any{
		"name": "waldo", "version": version,
		"description": "Capabilities under contract. A message names one skill and its arguments: metadata.skill with a " +
			"data part, or a data part {\"skill\": …, \"arguments\": …}.",
		"supportedInterfaces": []any{
			map[string]any{"url": base + "/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
			map[string]any{"url": base + "/a2a", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
		},
		"capabilities":       capabilities,
		"defaultInputModes":  []string{"application/json", "text/plain"},
		"defaultOutputModes": []string{"text/plain", "application/json"},
		"skills":             listed,
	}
	if len(schemes) > 0 {
		card["securitySchemes"], card["securityRequirements"] = schemes, needs
	}
	return card
}

// security is how clients authenticate, as for MCP.
func security(g contract.Gateway) (schemes map[string]any, needs []any) {
	schemes = map[string]any{}
	need := func(name string, scopes []string) {
		list := map[string]any{}
		if len(scopes) > 0 {
			list["list"] = scopes
		}
		needs = append(needs, map[string]any{"schemes": map[string]any{name: list}})
	}
	if len(g.Tokens) > 0 {
		schemes["token"] = map[string]any{"httpAuthSecurityScheme": map[string]any{"scheme": "Bearer",
			"description": "A token that the operator gave out"}}
		need("token", nil)
	}
	if g.OIDC != nil {
		schemes["oidc"] = map[string]any{"openIdConnectSecurityScheme": map[string]any{
			"openIdConnectUrl": strings.TrimSuffix(g.OIDC.Issuer, "/") + "/.well-known/openid-configuration"}}
		need("oidc", g.OIDC.Scopes)
	}
	for _, name := range slices.Sorted(maps.Keys(g.Tenants)) {
		if own := g.Tenants[name].Issuer; own.Issuer != "" {
			schemes["oidc_"+name] = map[string]any{"openIdConnectSecurityScheme": map[string]any{
				"openIdConnectUrl": strings.TrimSuffix(own.Issuer, "/") + "/.well-known/openid-configuration"}}
			need("oidc_"+name, own.Scopes)
		}
	}
	return schemes, needs
}

// shown caches the skills of the public card, which anybody can ask for.
type shown struct {
	mu     sync.Mutex
	at     time.Time
	skills []Skill
}

const cardAge = 5 * time.Second

func (c *shown) get(ctx context.Context, list func(context.Context) []Skill) []Skill {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || time.Since(c.at) > cardAge {
		c.skills, c.at = list(ctx), time.Now()
	}
	return c.skills
}
