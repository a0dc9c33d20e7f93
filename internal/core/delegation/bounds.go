package delegation

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/hostrule"
	"waldo/internal/protocol/strictjson"
)

// All stands for every host, or every secret, that the contracts name.
const All = "*"

// The limits of one delegation.
const (
	maxList     = 64 // lines of one bound
	maxIf       = 16
	maxText     = 2_000 // bytes of one line
	maxCalls    = 1_000_000
	maxDepth    = 8
	MaxLifetime = 30 * 24 * time.Hour
)

// Bounds are what a delegation leaves of the authority above it. The zero Bounds leave nothing.
type Bounds struct {
	Allow   []contract.Pattern `json:"allow"`             // capabilities
	If      []string           `json:"if,omitempty"`      // CEL conditions; each must be true
	Hosts   []string           `json:"hosts,omitempty"`   // as in *.example.com, or All
	Secrets []string           `json:"secrets,omitempty"` // names, or All
	Danger  int                `json:"danger"`            // the highest that a call can have: 1, 2 or 3
	Calls   int                `json:"calls"`             // of the whole tree below it
	Depth   int                `json:"depth,omitempty"`   // delegations below it
}

// Request is what somebody asks to hand down.
type Request struct {
	Bounds
	Lifetime time.Duration
	For      call.Principal // who can use it
	Key      string         // thumbprint (RFC 7638) of the key whose proof each use needs; empty: none
}

// ParseRequest reads a request: one JSON object with the members of Bounds, lifetime as in "1h", and for. It refuses
// unknown members.
func ParseRequest(text []byte) (r Request, err error) {
	v, err := strictjson.Parse(text)
	if err != nil {
		return r, fmt.Errorf("delegation: %w", err)
	}
	members, ok := v.Members()
	if !ok {
		return r, fmt.Errorf("delegation: a request is one JSON object")
	}
	known := []string{"allow", "if", "hosts", "secrets", "danger", "calls", "depth", "lifetime", "for", "key"}
	for name := range members {
		if !slices.Contains(known, name) {
			return r, fmt.Errorf("delegation: unknown member %.100q; known are %q", name, known)
		}
	}
	var more struct {
		Lifetime string         `json:"lifetime"`
		For      call.Principal `json:"for"`
		Key      string         `json:"key"`
	}
	if err := v.Decode(&r.Bounds); err != nil {
		return r, fmt.Errorf("delegation: %w", err)
	}
	if err := v.Decode(&more); err != nil {
		return r, fmt.Errorf("delegation: %w", err)
	}
	if r.Lifetime, err = time.ParseDuration(more.Lifetime); err != nil {
		return r, fmt.Errorf("delegation: lifetime must be as in \"1h\"")
	}
	r.For, r.Key = more.For, more.Key
	return r, nil
}

func malformed(format string, args ...any) *call.Reason {
	return &call.Reason{Code: "delegation.request", Text: fmt.Sprintf(format, args...)}
}

// fault returns what is wrong with a request by itself.
func (r Request) fault() *call.Reason {
	switch {
	case !strings.Contains(string(r.For), ":") || len(r.For) > 256:
		return malformed("for must name a principal, as in os:1000 or token:ci")
	case r.Lifetime <= 0 || r.Lifetime > MaxLifetime:
		return malformed("lifetime must be above zero and at most %s", MaxLifetime)
	}
	if b, err := base64.RawURLEncoding.Strict().DecodeString(r.Key); r.Key != "" && (err != nil || len(b) != sha256.Size) {
		return malformed("key must be the thumbprint of a key (RFC 7638, SHA-256): 43 characters of base64url")
	}
	return r.Bounds.fault()
}

// fault returns what is wrong with bounds by themselves.
func (b Bounds) fault() *call.Reason {
	for name, l := range map[string]int{"allow": len(b.Allow), "hosts": len(b.Hosts), "secrets": len(b.Secrets)} {
		if l > maxList {
			return malformed("%s has %d lines; at most %d are taken", name, l, maxList)
		}
	}
	switch {
	case len(b.Allow) == 0:
		return malformed("allow must name a capability")
	case b.Danger < 1 || b.Danger > 3:
		return malformed("danger must be 1, 2 or 3")
	case b.Calls < 1 || b.Calls > maxCalls:
		return malformed("calls must be 1 to %d", maxCalls)
	case b.Depth < 0 || b.Depth > maxDepth:
		return malformed("depth must be 0 to %d", maxDepth)
	case len(b.If) > maxIf:
		return malformed("if has %d conditions; at most %d are taken", len(b.If), maxIf)
	}
	for _, p := range b.Allow {
		if text, _ := p.Fault(); text != "" {
			return malformed("allow %.200q: %s", p, text)
		}
	}
	for _, h := range b.Hosts {
		if _, err := hostrule.ParsePattern(h); h != All && err != nil {
			return malformed("hosts: %.300v", err)
		}
	}
	for _, s := range b.Secrets {
		if s == "" || len(s) > maxText {
			return malformed("secrets: %.200q is not the name of a secret", s)
		}
	}
	for _, c := range b.If {
		if _, err := policy.NewBound(c); err != nil {
			return malformed("if %.200q: %v", c, err)
		}
	}
	return nil
}

// within returns why a request is wider than the delegation that it is to stand under: the line of that delegation.
func (l *Link) within(r Request, expires time.Time) *call.Reason {
	wider := func(bound, format string, args ...any) *call.Reason {
		return &call.Reason{Code: "delegation." + bound,
			Text: fmt.Sprintf(format, args...) + fmt.Sprintf(", says %s (record %d)", l.ID, l.Seq)}
	}
	for _, p := range r.Allow {
		covers := func(q contract.Pattern) bool { return q.Covers(p) }
		if !slices.ContainsFunc(l.Allow, covers) {
			return wider("capability", "allow %q is wider than %q", p, l.Allow)
		}
	}
	for _, h := range r.Hosts {
		if !covered(l.Hosts, h) {
			return wider("hosts", "hosts %q is wider than %q", h, l.Hosts)
		}
	}
	for _, s := range r.Secrets {
		if !slices.Contains(l.Secrets, s) && !slices.Contains(l.Secrets, All) {
			return wider("secrets", "secrets %q is not in %q", s, l.Secrets)
		}
	}
	switch {
	case r.Danger > l.Danger:
		return wider("danger", "danger %d is above %d", r.Danger, l.Danger)
	case r.Calls > l.Calls:
		return wider("budget", "calls %d is above %d", r.Calls, l.Calls)
	case r.Depth >= l.Depth:
		return wider("depth", "depth %d is not below %d", r.Depth, l.Depth)
	case expires.After(l.Expires):
		return wider("lifetime", "lifetime %s ends after %s", r.Lifetime, l.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}

// covered reports whether one of the bounds covers a host: a pattern, or All.
func covered(bounds []string, host string) bool {
	if slices.Contains(bounds, All) {
		return true
	}
	q, err := hostrule.ParsePattern(host)
	if err != nil {
		return false // All, or no host
	}
	for _, b := range bounds {
		if p, err := hostrule.ParsePattern(b); err == nil && p.Covers(q) {
			return true
		}
	}
	return false
}

// narrow returns the lines of egress that the bounds leave: those that a bound covers, and a bound below the host of a
// line in its place.
func narrow(lines, bounds []string) (out []string) {
	for _, text := range lines {
		l, err := hostrule.Parse(text)
		if err != nil {
			continue
		}
		if covered(bounds, l.Host.String()) {
			out = append(out, text)
			continue
		}
		for _, b := range bounds {
			if p, err := hostrule.ParsePattern(b); err == nil && l.Host.Covers(p) {
				l.Host = p
				out = append(out, l.String())
			}
		}
	}
	return out
}
