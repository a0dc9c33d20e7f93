// Package oidclogin logs people in to the console by OpenID Connect: the authorization code flow with PKCE.
package oidclogin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"waldo/internal/feature/console/site"
	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// How long metadata is used, how long a failure to get it lasts, and how long one request may take.
const (
	fresh    = 10 * time.Minute
	pause    = 30 * time.Second
	patience = 10 * time.Second
)

// Options are the issuer and the access to the secret of the client.
type Options struct {
	Login  contract.ConsoleLogin
	Secret func(secret.Ref) (secret.Value, error)
	Client *http.Client     // nil: one of its own
	Now    func() time.Time // nil: time.Now
}

// Issuer satisfies site.Issuer.
type Issuer struct {
	o      Options
	tokens *identity.OIDC

	mu      sync.Mutex
	about   identity.Metadata
	fetched time.Time
	tried   time.Time
}

// New returns the issuer of a configuration.
func New(o Options) *Issuer {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Client == nil {
		o.Client = &http.Client{}
	}
	one := *o.Client
	one.Timeout = patience
	one.CheckRedirect = func(*http.Request, []*http.Request) error { return errors.New("the issuer redirects to another place") }
	o.Client = &one
	return &Issuer{o: o, tokens: &identity.OIDC{
		Issuer: o.Login.Issuer, Audience: o.Login.ClientID, Client: o.Client, Now: o.Now,
	}}
}

// Page satisfies site.Issuer.
func (i *Issuer) Page(ctx context.Context, f site.Flow) (string, error) {
	c, _, err := i.config(ctx, f)
	if err != nil {
		return "", err
	}
	return c.AuthCodeURL(f.State, oauth2.S256ChallengeOption(f.Verifier), oauth2.SetAuthURLParam("nonce", f.Nonce)), nil
}

// Redeem satisfies site.Issuer.
func (i *Issuer) Redeem(ctx context.Context, f site.Flow, code, from string) (n site.Login, err error) {
	c, about, err := i.config(ctx, f)
	if err != nil {
		return n, err
	}
	if from != i.o.Login.Issuer && (from != "" || about.Names) { // RFC 9207 §2.4
		return n, site.Problemf(http.StatusForbidden, "login.oidc_issuer", "the answer comes from another issuer")
	}
	if i.o.Login.Secret != "" {
		v, err := i.o.Secret(i.o.Login.Secret)
		if err != nil {
			return n, err
		}
		c.ClientSecret = v.Reveal()
	}
	t, err := c.Exchange(context.WithValue(ctx, oauth2.HTTPClient, i.o.Client), code, oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return n, site.Problemf(http.StatusForbidden, "login.oidc_code", "the issuer did not take the code of its answer")
	}
	raw, _ := t.Extra("id_token").(string)
	in, err := i.tokens.Login(ctx, raw, f.Nonce, i.o.Login.Claim)
	if err != nil {
		return n, site.Problemf(http.StatusForbidden, "login.oidc_token", "the issuer's ID token is refused: %v", err)
	}
	return site.Login{
		Issuer: i.o.Login.Issuer, Client: i.o.Login.ClientID, Principal: call.Principal("oidc:" + in.Subject),
		Values: in.Values, Expires: in.Expires,
	}, nil
}

// Role satisfies site.Issuer.
func (i *Issuer) Role(n site.Login) site.Role {
	if n.Issuer != i.o.Login.Issuer || n.Client != i.o.Login.ClientID {
		return site.RoleNone
	}
	has := func(wanted []string) bool {
		return slices.ContainsFunc(n.Values, func(v string) bool { return slices.Contains(wanted, v) })
	}
	switch l := i.o.Login; {
	case has(l.Operator):
		return site.RoleOperator
	case has(l.Approver):
		return site.RoleApprover
	case has(l.Viewer):
		return site.RoleViewer
	}
	return site.RoleNone
}

// config returns the client for a login, without its secret, and the issuer's metadata.
func (i *Issuer) config(ctx context.Context, f site.Flow) (*oauth2.Config, identity.Metadata, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if now := i.o.Now(); now.Sub(i.fetched) >= fresh && now.Sub(i.tried) >= pause {
		i.tried = now
		m, err := i.tokens.Metadata(context.WithoutCancel(ctx)) // others wait for the same
		if err == nil {
			err = errors.Join(identity.Secure(m.Authorize), identity.Secure(m.Token))
		}
		if err == nil {
			i.about, i.fetched = m, now
		}
	}
	if i.about.Token == "" {
		return nil, i.about, site.Problemf(http.StatusBadGateway, "login.oidc_metadata",
			"the metadata of the issuer cannot be read; try again in a minute")
	}
	style := oauth2.AuthStyleInParams
	if i.o.Login.Secret != "" && (len(i.about.Methods) == 0 || slices.Contains(i.about.Methods, "client_secret_basic")) {
		style = oauth2.AuthStyleInHeader
	}
	return &oauth2.Config{
		ClientID: i.o.Login.ClientID, RedirectURL: f.Redirect, Scopes: append([]string{"openid"}, i.o.Login.Scopes...),
		Endpoint: oauth2.Endpoint{AuthURL: i.about.Authorize, TokenURL: i.about.Token, AuthStyle: style},
	}, i.about, nil
}
