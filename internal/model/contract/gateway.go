package contract

import "waldo/internal/model/secret"

// Gateway says where waldo serve listens and who is let in. The zero value lets in the user that
// waldo runs as, over connections within this machine.
type Gateway struct {
	Lean    bool              // show search, call and code in place of every tool
	Marks   bool              // put untrusted text between marks
	Listen  string            // "127.0.0.1:7676"
	URL     string            // of the MCP endpoint, as clients know it
	Origins []string          // of pages that may ask, besides those of waldo's own
	Tokens  map[string]string // name to the hash of a token
	OIDC    *Issuer
	Limits  GatewayLimits
	Console ConsoleRoles
	Tenants Tenants `json:",omitempty"`
}

// Authenticates reports whether clients over HTTP need a token.
func (g Gateway) Authenticates() bool { return len(g.Tokens) > 0 || g.Issues() }

// Issues reports whether the tokens of an issuer are accepted.
func (g Gateway) Issues() bool {
	for _, t := range g.Tenants {
		if t.Issuer.Issuer != "" {
			return true
		}
	}
	return g.OIDC != nil
}

// ConsoleRoles are the principals whose tokens the console's API takes, by role. A principal in none has no access.
type ConsoleRoles struct {
	Viewer, Approver, Operator []string
	OIDC                       *ConsoleLogin // who logs in by OpenID Connect; nil: none
}

// ConsoleLogin is an issuer whose people log in to the console. A login without one of the values has no access.
type ConsoleLogin struct {
	Issuer, ClientID, Claim    string
	Secret                     secret.Ref // of the client; empty: a public client
	Scopes                     []string   // to ask for, besides openid
	Viewer, Approver, Operator []string   // values of the claim
}

// GatewayLimits bound the clients; 0 means waldo's own bound. All but those of tasks are of clients over HTTP.
type GatewayLimits struct {
	Connections, Strangers, Sessions, SessionsEach, CallsEach, Tasks,
	TasksEach, TaskSeconds int
}

// Issuer is who signs the tokens that let people in (OAuth 2.1).
type Issuer struct {
	Issuer string
	JWKS   string   // where its keys are; empty: as its own metadata says
	Scopes []string // each of which a token must have
}
