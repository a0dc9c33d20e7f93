// Package signature signs webhooks and verifies their signatures, as GitHub, Stripe, Slack and Standard Webhooks do. It
// has no I/O: the caller gives it the headers, the bytes of the body and the time.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Scheme is a way to sign.
type Scheme string

// The schemes. Each is HMAC-SHA256; they differ in the signed text and in the headers.
const (
	GitHub   Scheme = "github"   // the body; no time, and no id that is signed
	Stripe   Scheme = "stripe"   // time.body
	Slack    Scheme = "slack"    // v0:time:body
	Standard Scheme = "standard" // id.time.body, https://www.standardwebhooks.com
)

// Schemes are the names of all schemes.
func Schemes() []string {
	return []string{string(GitHub), string(Stripe), string(Slack), string(Standard)}
}

// The headers of the schemes.
const (
	hubSignature   = "X-Hub-Signature-256"
	stripeHeader   = "Stripe-Signature"
	slackTime      = "X-Slack-Request-Timestamp"
	slackSignature = "X-Slack-Signature"
	standardID     = "Webhook-Id"
	standardTime   = "Webhook-Timestamp"
	standardSigned = "Webhook-Signature"
)

// Limits of parsing.
const (
	MaxName       = 256 // bytes of an id
	maxSignatures = 16
	minText       = 16 // bytes of a secret that is a text
	minStandard   = 24 // bytes of a secret of Standard Webhooks, as its specification wants
	maxKey        = 512
)

// Key is a secret as the HMAC takes it. The zero Key signs nothing and verifies nothing.
type Key struct{ b []byte }

// Prefix begins a secret of Standard Webhooks.
const Prefix = "whsec_"

// Key reads a secret. With Standard it is base64 of 24 to 512 bytes, with or without "whsec_" before it. With the
// other schemes it is taken as it is, 16 to 512 bytes. The error does not hold the secret.
func (s Scheme) Key(secret string) (Key, error) {
	if s != Standard {
		if len(secret) < minText || len(secret) > maxKey {
			return Key{}, fmt.Errorf("a secret of the scheme %s has %d to %d bytes", s, minText, maxKey)
		}
		return Key{[]byte(secret)}, nil
	}
	b, err := base64.StdEncoding.Strict().DecodeString(strings.TrimPrefix(secret, Prefix))
	if err != nil {
		return Key{}, fmt.Errorf("a secret of the scheme standard is base64, with or without %s before it", Prefix)
	}
	if len(b) < minStandard || len(b) > maxKey {
		return Key{}, fmt.Errorf("a secret of the scheme standard is the base64 of %d to %d bytes", minStandard, maxKey)
	}
	return Key{b}, nil
}

// Raw takes a secret as it is, of any length but none.
func Raw(secret string) Key { return Key{[]byte(secret)} }

// Refusal is the class of the reason against a webhook. It holds nothing that the sender chose.
type Refusal string

// The classes.
const (
	NoHeader     Refusal = "header"    // a header of the scheme is missing, stands twice or is malformed
	BadName      Refusal = "id"        // the id is malformed
	BadTime      Refusal = "time"      // the signed time is outside the window
	BadSignature Refusal = "signature" // no signature fits a secret
	NoKey        Refusal = "secret"    // there is no secret to verify with
)

// Error satisfies error.
func (r Refusal) Error() string { return "the webhook is refused: " + string(r) }

// Message identifies a verified webhook.
type Message struct {
	// Name is the same for each copy of the webhook, and signed: its id, or the digest of its body where the scheme
	// signs no id.
	Name   string
	Signed time.Time // zero: the scheme signs no time
}

// Claim holds the headers of a webhook. Only their form is verified.
type Claim struct {
	scheme      Scheme
	name, stamp string
	signed      time.Time
	signatures  [][]byte // of 32 bytes each
}

// Read reads the headers of the scheme, each of which must stand once. The signed time is at most window before or
// after now. So a webhook without them can be refused before its body is read. A refusal is a Refusal.
func (s Scheme) Read(h http.Header, now time.Time, window time.Duration) (c Claim, err error) {
	c.scheme = s
	if err := c.read(h); err != nil {
		return Claim{}, err
	}
	if s == GitHub {
		return c, nil
	}
	var ok bool
	if c.signed, ok = seconds(c.stamp); !ok {
		return Claim{}, NoHeader
	}
	if c.signed.Before(now.Add(-window)) || c.signed.After(now.Add(window)) {
		return Claim{}, BadTime
	}
	return c, nil
}

// Verify checks that a signature of the claim fits one of the keys. A refusal is a Refusal. Its time does not depend
// on how much of a signature is right.
func (c Claim) Verify(body []byte, keys []Key) (Message, error) {
	fits, some := 0, false
	for _, k := range keys {
		if len(k.b) == 0 {
			continue
		}
		some = true
		want := c.scheme.mac(k, c.name, c.stamp, body)
		for _, got := range c.signatures {
			if hmac.Equal(got, want) {
				fits++ // the others are compared, too
			}
		}
	}
	switch {
	case !some:
		return Message{}, NoKey
	case fits == 0:
		return Message{}, BadSignature
	}
	m := Message{Name: c.name, Signed: c.signed}
	if m.Name == "" {
		m.Name = Digest(body)
	}
	return m, nil
}

// Verify is Read and Claim.Verify.
func (s Scheme) Verify(h http.Header, body []byte, keys []Key, now time.Time, window time.Duration) (Message, error) {
	c, err := s.Read(h, now, window)
	if err != nil {
		return Message{}, err
	}
	return c.Verify(body, keys)
}

// Digest is the SHA-256 of a body, as "sha256:" and 64 digits.
func Digest(body []byte) string {
	d := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(d[:])
}

// mac is the signature that a key makes.
func (s Scheme) mac(k Key, name, stamp string, body []byte) []byte {
	h := hmac.New(sha256.New, k.b)
	switch s {
	case Stripe:
		_, _ = h.Write([]byte(stamp + "."))
	case Slack:
		_, _ = h.Write([]byte("v0:" + stamp + ":"))
	case Standard:
		_, _ = h.Write([]byte(name + "." + stamp + "."))
	}
	_, _ = h.Write(body)
	return h.Sum(nil)
}

// read reads the headers of the scheme.
func (c *Claim) read(h http.Header) error {
	switch c.scheme {
	case GitHub:
		text, ok := once(h, hubSignature)
		digits, prefixed := strings.CutPrefix(text, "sha256=")
		if !ok || !prefixed {
			return NoHeader
		}
		c.add(fromHex(digits))
	case Slack:
		stamp, timed := once(h, slackTime)
		text, ok := once(h, slackSignature)
		digits, prefixed := strings.CutPrefix(text, "v0=")
		if !timed || !ok || !prefixed {
			return NoHeader
		}
		c.stamp = stamp
		c.add(fromHex(digits))
	case Stripe:
		text, ok := once(h, stripeHeader)
		if !ok || !c.stripe(text) {
			return NoHeader
		}
	case Standard:
		var named, timed, signed bool
		var text string
		c.name, named = once(h, standardID)
		c.stamp, timed = once(h, standardTime)
		text, signed = once(h, standardSigned)
		if !named || !timed || !signed {
			return NoHeader
		}
		if !Named(c.name) {
			return BadName
		}
		for one := range strings.SplitSeq(text, " ") {
			if code, ok := strings.CutPrefix(one, "v1,"); ok {
				b, err := base64.StdEncoding.Strict().DecodeString(code)
				c.add(b, err == nil)
			}
		}
	default:
		return NoHeader
	}
	if len(c.signatures) == 0 {
		return BadSignature
	}
	return nil
}

// stripe reads t=TIME,v1=HEX[,v1=HEX…]. Other keys are left out.
func (c *Claim) stripe(text string) bool {
	times := 0
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		switch {
		case !ok:
			return false
		case key == "t":
			c.stamp = value
			times++
		case key == "v1":
			c.add(fromHex(value))
		}
	}
	return times == 1
}

// add keeps a signature of the length of SHA-256.
func (c *Claim) add(b []byte, ok bool) {
	if ok && len(b) == sha256.Size && len(c.signatures) < maxSignatures {
		c.signatures = append(c.signatures, b)
	}
}

func fromHex(s string) ([]byte, bool) {
	b, err := hex.DecodeString(s)
	return b, err == nil
}

// once returns a header that stands once and is not empty.
func once(h http.Header, name string) (string, bool) {
	all := h.Values(name)
	if len(all) != 1 || all[0] == "" {
		return "", false
	}
	return all[0], true
}

// Named reports whether s can be the id of a webhook: 1 to 256 bytes of visible ASCII without a dot. A dot ends the id
// in the signed text, so with one the same signature would fit another id, time and body.
func Named(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || s[i] == '.' {
			return false
		}
	}
	return s != "" && len(s) <= MaxName
}

// seconds reads a time in seconds since 1970: 1 to 11 decimal digits.
func seconds(s string) (time.Time, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return time.Time{}, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || len(s) > 11 {
		return time.Time{}, false
	}
	return time.Unix(n, 0), true
}

// Sign returns the headers that sign a body. name is used by Standard alone. The zero Key gives no headers.
func (s Scheme) Sign(k Key, name string, at time.Time, body []byte) http.Header {
	h := http.Header{}
	if len(k.b) == 0 {
		return h
	}
	stamp := strconv.FormatInt(at.Unix(), 10)
	sum := s.mac(k, name, stamp, body)
	switch s {
	case GitHub:
		h.Set(hubSignature, "sha256="+hex.EncodeToString(sum))
	case Stripe:
		h.Set(stripeHeader, "t="+stamp+",v1="+hex.EncodeToString(sum))
	case Slack:
		h.Set(slackTime, stamp)
		h.Set(slackSignature, "v0="+hex.EncodeToString(sum))
	case Standard:
		h.Set(standardID, name)
		h.Set(standardTime, stamp)
		h.Set(standardSigned, "v1,"+base64.StdEncoding.EncodeToString(sum))
	}
	return h
}
