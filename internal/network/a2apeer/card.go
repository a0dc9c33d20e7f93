package a2apeer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"strings"

	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// arguments is the URI of waldo's extension with the schemas of the arguments of skills.
const arguments = "urn:waldo:a2a:skill-arguments:1"

// maxSkills bounds the skills of one card.
const maxSkills = 512

// card is an agent card that was checked.
type card struct {
	endpoint
	digest string // of the card without its signatures
	skills []strictjson.Value
	params strictjson.Value // of waldo's extension; can be zero
}

// places are where a card is below the address of its agent: the second in versions before 0.3.
var places = []string{"/.well-known/agent-card.json", "/.well-known/agent.json"}

// card reads the agent card: the extended one where the agent has it.
func (c *Conn) card(ctx context.Context) (*card, error) {
	var resp *http.Response
	for _, place := range places {
		if resp != nil {
			_ = resp.Body.Close()
		}
		var err error
		resp, err = c.do(ctx, http.MethodGet, strings.TrimSuffix(c.base.String(), "/")+place, endpoint{}, nil)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusNotFound {
			break
		}
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("the agent card: the agent answered %d", resp.StatusCode)
	}
	v, err := read(resp, maxCard)
	if err != nil {
		return nil, fmt.Errorf("the agent card: %w", err)
	}
	known, err := c.checked(v)
	if err != nil {
		return nil, fmt.Errorf("the agent card: %w", err)
	}
	extended := v.Member("capabilities").Member("extendedAgentCard")
	if known.old {
		extended = v.Member("supportsAuthenticatedExtendedCard")
	}
	if string(extended.Raw()) == "true" {
		if v, err = c.askAt(ctx, known.endpoint, "GetExtendedAgentCard", map[string]any{}); err == nil {
			known, err = c.checked(v)
		}
		if err != nil {
			return nil, fmt.Errorf("the extended agent card: %w", err)
		}
	}
	c.at.Store(&known.endpoint)
	return known, nil
}

// checked returns a card if its key signed it, where the operator names one, and if it is of this agent: at the same
// scheme, host and port. Credentials go to no other.
func (c *Conn) checked(v strictjson.Value) (*card, error) {
	members, ok := v.Members()
	if !ok {
		return nil, &jsonrpc.MalformedResponse{Why: "it is not a card"}
	}
	signatures, _ := members["signatures"].Elements()
	delete(members, "signatures")
	plain, err := value(members)
	if err != nil {
		return nil, err
	}
	if c.o.Key != "" && !signed(plain, signatures, c.o.Key) {
		return nil, errors.New("card.signature: the key of peers.card did not sign it")
	}
	out := &card{digest: plain.Digest()}
	if out.endpoint, err = c.reached(members); err != nil {
		return nil, err
	}
	out.skills, _ = members["skills"].Elements()
	if len(out.skills) > maxSkills {
		return nil, fmt.Errorf("card.skills: it has more than %d skills", maxSkills)
	}
	extensions, _ := members["capabilities"].Member("extensions").Elements()
	for _, e := range extensions {
		uri, _ := e.Member("uri").Text()
		if uri == arguments {
			out.params = e.Member("params")
		} else if string(e.Member("required").Raw()) == "true" {
			return nil, fmt.Errorf("card.extension: it requires the extension %.100q, which waldo does not speak", uri)
		}
	}
	return out, nil
}

// reached returns the first interface of a card that is spoken here: A2A 1.0 over JSON-RPC or HTTP+JSON, or A2A 0.3 over
// JSON-RPC.
func (c *Conn) reached(members map[string]strictjson.Value) (endpoint, error) {
	streams := string(members["capabilities"].Member("streaming").Raw()) == "true"
	for _, e := range append(endpoints(members), oldEndpoints(members)...) {
		u, err := url.Parse(e.at)
		if err != nil {
			continue
		}
		if u.Scheme != c.base.Scheme || u.Host != c.base.Host || u.User != nil {
			return e, errors.New("card.host: it names another host than the url of the peer")
		}
		e.streams = streams
		return e, nil
	}
	return endpoint{}, errors.New("card.version: it has no interface of A2A 1.0 over JSON-RPC or HTTP+JSON, nor of A2A 0.3 " +
		"over JSON-RPC")
}

// endpoints are the interfaces of a card of A2A 1.0, those of version 1.0 first.
func endpoints(members map[string]strictjson.Value) (out []endpoint) {
	all, _ := members["supportedInterfaces"].Elements()
	var before []endpoint
	for _, i := range all {
		binding, _ := i.Member("protocolBinding").Text()
		version, _ := i.Member("protocolVersion").Text()
		at, _ := i.Member("url").Text()
		e := endpoint{at: at, rest: binding == "HTTP+JSON", old: isOld(version)}
		switch {
		case version == "1.0" && (e.rest || binding == "JSONRPC"):
			out = append(out, e)
		case e.old && binding == "JSONRPC":
			before = append(before, e)
		}
	}
	return append(out, before...)
}

func isOld(version string) bool { return version == "0.3" || strings.HasPrefix(version, "0.3.") }

// oldEndpoints are the interfaces of a card of A2A 0.3: its url, and additionalInterfaces.
func oldEndpoints(members map[string]strictjson.Value) (out []endpoint) {
	if version, _ := members["protocolVersion"].Text(); !isOld(version) {
		return nil
	}
	first, _ := members["url"].Text()
	if kind, has := members["preferredTransport"].Text(); first != "" && (!has || kind == "JSONRPC") {
		out = append(out, endpoint{at: first, old: true})
	}
	more, _ := members["additionalInterfaces"].Elements()
	for _, i := range more {
		at, _ := i.Member("url").Text()
		if kind, _ := i.Member("transport").Text(); kind == "JSONRPC" {
			out = append(out, endpoint{at: at, old: true})
		}
	}
	return out
}

// signed reports whether a key with a thumbprint signed a card (§8.4). The key is in the unprotected header of the
// signature; its thumbprint is trusted.
func signed(plain strictjson.Value, signatures []strictjson.Value, thumbprint string) bool {
	for _, s := range signatures {
		protected, _ := s.Member("protected").Text()
		text, _ := s.Member("signature").Text()
		sig, err := base64.RawURLEncoding.DecodeString(text)
		head, herr := base64.RawURLEncoding.DecodeString(protected)
		if err != nil || herr != nil || len(sig) != 64 {
			continue
		}
		var h struct {
			Alg  string   `json:"alg"`
			Crit []string `json:"crit"`
		}
		if json.Unmarshal(head, &h) != nil || h.Alg != "ES256" || len(h.Crit) > 0 {
			continue
		}
		key, print := keyOf(s.Member("header").Member("jwk"))
		if key == nil || print != thumbprint {
			continue
		}
		sum := sha256.Sum256([]byte(protected + "." + base64.RawURLEncoding.EncodeToString(plain.Canonical())))
		if ecdsa.Verify(key, sum[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:])) {
			return true
		}
	}
	return false
}

// keyOf reads a JSON Web Key of P-256, and its thumbprint (RFC 7638).
func keyOf(jwk strictjson.Value) (*ecdsa.PublicKey, string) {
	kty, _ := jwk.Member("kty").Text()
	crv, _ := jwk.Member("crv").Text()
	xText, _ := jwk.Member("x").Text()
	yText, _ := jwk.Member("y").Text()
	x, xerr := base64.RawURLEncoding.DecodeString(xText)
	y, yerr := base64.RawURLEncoding.DecodeString(yText)
	if kty != "EC" || crv != "P-256" || xerr != nil || yerr != nil || len(x) != 32 || len(y) != 32 {
		return nil, ""
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
	if err != nil {
		return nil, ""
	}
	b, err := json.Marshal(map[string]string{"kty": "EC", "crv": "P-256", "x": xText, "y": yText})
	if err != nil {
		return nil, ""
	}
	sum := sha256.Sum256(b)
	return key, base64.RawURLEncoding.EncodeToString(sum[:])
}

// tools are the skills as tools of MCP. Each holds the digest of the whole card, so that any change of the card is one
// of each tool.
func (k *card) tools() []any {
	out := []any{}
	for _, s := range k.skills {
		id, _ := s.Member("id").Text()
		title, _ := s.Member("name").Text()
		about, _ := s.Member("description").Text()
		var data any = map[string]any{"type": "object", "description": "The arguments of the skill, as data"}
		if schema := k.params.Member(id); schema.Kind() == '{' && !k.params.IsZero() {
			data = schema
		}
		word := func(say string) map[string]any { return map[string]any{"type": "string", "description": say} }
		out = append(out, map[string]any{"name": id, "title": title, "description": about,
			"_meta": map[string]any{"a2a/card": k.digest},
			"inputSchema": map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{
				"message": word("What to tell the agent"), "arguments": data,
				"task_id":    word("A task that waits, to go on with it; alone: to look at it"),
				"context_id": word("The conversation that the message belongs to")}}})
	}
	return out
}
