package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/core/redact"
	"waldo/internal/executor/runner"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
	"waldo/internal/network/egress"
	"waldo/internal/network/egress/pkgcache"
	"waldo/internal/sandbox"
)

// egress makes the way out of the box of a decided call.
func (h *house) egress(d policy.Decision, n contract.Network) (*runner.Way, error) {
	hidden := map[string]secret.Ref{}
	for _, v := range d.Contract.Placeholders() {
		hidden[v] = d.Contract.Secrets[v]
	}
	return h.wayOut(n, hidden)
}

// wayOut makes the way out of one box; nil: the network allows nothing. Of the secrets, by the
// variable of the box, those that belong to a host of the network go into requests to it, and the
// box gets placeholders.
func (h *house) wayOut(n contract.Network, secrets map[string]secret.Ref) (*runner.Way, error) {
	lines := n.Allow
	if n.Internal {
		lines = h.cfg.Internal
	}
	return h.wayTo(lines, n, secrets)
}

// wayTo makes a way to what lines allow, and to the packages of n; with n.Internal, also where that is of the operator's own network.
func (h *house) wayTo(lines []string, n contract.Network, secrets map[string]secret.Ref) (*runner.Way, error) {
	if len(lines)+len(n.Packages) == 0 {
		return nil, nil
	}
	rules, err := egress.ParseRules(lines)
	if err != nil {
		return nil, err
	}
	for i := range rules {
		rules[i].Internal = n.Internal
	}
	from, env, err := h.registries(n)
	if err != nil {
		return nil, err
	}
	for _, r := range from {
		lines = append(slices.Clone(lines), "GET,HEAD "+r.Host.String()+r.Paths[0])
	}
	p := h.lets(append(rules, from...), n.Limits)
	w := &runner.Way{Hosts: slices.Clone(lines), Env: env}
	var creds []egress.Credential
	for v, ref := range secrets {
		b := h.cfg.Secrets[string(ref)].Broker
		if b == nil {
			continue
		}
		c := h.credential(ref, *b)
		if p.Classify(c.Host, c.Port) != nil {
			continue // a narrower list of hosts: the variable is not there
		}
		creds = append(creds, c)
		w.Env = append(w.Env, v+"="+c.Placeholder)
		if c.As == egress.SigV4 {
			w.Env = append(w.Env, "AWS_ACCESS_KEY_ID=waldo", "AWS_REGION="+c.Region, "AWS_DEFAULT_REGION="+c.Region)
		}
	}
	o := egress.Options{Credentials: creds, Forms: redact.Forms}
	if len(from) > 0 {
		if o.Shelf, err = pkgcache.Open(filepath.Join(h.state, "shelf"), keptPackages); err != nil {
			return nil, fmt.Errorf("what is kept of packages: %w", err)
		}
	}
	if w.Server, err = egress.NewServer(&egress.Dialer{Policy: p}, o); err != nil {
		return nil, err
	}
	if ours := w.Server.Trust(); ours != nil {
		if err := h.trust(w, ours); err != nil {
			return nil, fmt.Errorf("what the box trusts: %w", err)
		}
	}
	return w, nil
}

// lets is the policy of one box.
func (h *house) lets(rules []egress.Rule, l contract.Traffic) *egress.Policy {
	return &egress.Policy{Rules: rules, Addresses: h.cfg.Addresses, Limits: egress.Limits{Bytes: int64(l.Bytes), BytesPerSec: int64(l.BytesPerSecond),
		PerSec: l.RequestsPerSecond, Conns: l.Connections}}
}

// into says by the word of a contract how a secret goes into a request.
var into = map[string]egress.As{"header": egress.Header, "bearer": egress.Bearer, "basic": egress.Basic, "query": egress.Query, "sigv4": egress.SigV4, "postgres": egress.Postgres}

// credential makes of a secret with a host what the egress adds. The secret is fetched at each use.
func (h *house) credential(ref secret.Ref, b contract.Broker) egress.Credential {
	from := func(r secret.Ref) func() (secret.Value, error) {
		if r == "" {
			return nil
		}
		return func() (secret.Value, error) { return h.secrets.Get(r) }
	}
	return egress.Credential{
		Name: string(ref), Placeholder: egress.NewPlaceholder(), Host: b.Host, Port: uint16(b.Port), Methods: b.Methods, Paths: b.Paths,
		As: into[b.As], Field: b.Name + b.User, Region: b.Region, Service: b.Service, Database: b.Database, Plain: b.Plain,
		Value: from(ref), KeyID: from(b.Key), Token: from(b.Token),
	}
}

// Where a box finds whom to trust, and the variables by which programs are told so: OpenSSL and Go,
// curl, Python's requests, pip, Node.js, npm, git, Deno, cargo, and the command line of AWS.
const trusted = "/run/waldo/ca.pem"

var trusting = []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "npm_config_cafile",
	"GIT_SSL_CAINFO", "DENO_CERT", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE"}

// trust shows a box the authorities of this machine, and its own.
func (h *house) trust(w *runner.Way, ours []byte) error {
	dir := filepath.Join(h.state, "run")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "trust-*.pem")
	if err != nil {
		return err
	}
	w.Close = func() error { return os.Remove(f.Name()) }
	_, err = f.Write(slices.Concat(authorities(), ours))
	if err = errors.Join(err, f.Chmod(0o444), f.Close()); err != nil {
		return errors.Join(err, w.Close())
	}
	w.Mounts = []sandbox.Mount{{Source: f.Name(), Target: trusted}}
	for _, v := range trusting {
		w.Env = append(w.Env, v+"="+trusted)
	}
	return nil
}

// authorities are the certificates that this machine trusts, in PEM, from where Go looks for them
// too; none where there are none.
func authorities() []byte {
	for _, name := range []string{os.Getenv("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/ssl/ca-bundle.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem"} {
		if b, err := os.ReadFile(name); name != "" && err == nil {
			return append(bytes.TrimRight(b, "\n"), '\n')
		}
	}
	return nil
}

// kindEgress is the kind of a record of what the box of a server has tried to reach.
const kindEgress = "egress"

type egressBody struct {
	Server   string          `json:"server"`
	Sandbox  string          `json:"sandbox"`
	Attempts []facts.Attempt `json:"attempts"`
}

// reached writes into the log what the box of a server has tried to reach since the last time, and
// returns it.
func (h *house) reached(s contract.Server, box string, w *runner.Way) []facts.Attempt {
	f := facts.New()
	w.Report(&f)
	if len(f.Network.Attempts) == 0 {
		return nil
	}
	body, err := json.Marshal(egressBody{s.Name, box, f.Network.Attempts})
	if err == nil {
		_, err = h.log.Append(context.Background(), kindEgress, body, false)
	}
	if err != nil {
		slog.Warn("what a server has reached could not be written into the log", "server", s.Name, "why", err)
	}
	return f.Network.Attempts
}

// watch writes it once a minute, for as long as the server lives.
func (h *house) watch(ctx context.Context, s contract.Server, box string, w *runner.Way) {
	t := time.NewTicker(time.Minute)
	defer t.Stop()
	for w != nil {
		select {
		case <-t.C:
			h.reached(s, box, w)
		case <-ctx.Done():
			return
		}
	}
}
