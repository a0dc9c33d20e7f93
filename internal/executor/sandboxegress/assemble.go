package sandboxegress

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
	"waldo/internal/network/egress"
	"waldo/internal/network/egress/packages"
	"waldo/internal/network/egress/pkgcache"
	"waldo/internal/sandbox"
	"waldo/internal/storage/safefile"
)

// Assembler makes the egress of sandboxes from one configuration.
type Assembler struct {
	State  string                                              // the state directory, which holds the package cache
	Config *contract.Config                                    // internal and addresses, secrets, folder of lock files
	Secret func(secret.Ref) (secret.Value, error)              // fetches a secret at each use
	Record func(server, sandbox string, tried []facts.Attempt) // writes to the log what a server's sandbox tried
}

// ForCall makes the egress of a decided call.
func (a *Assembler) ForCall(d policy.Decision, n contract.Network) (*Egress, error) {
	injected := map[string]secret.Ref{}
	for _, v := range d.Contract.Placeholders() {
		injected[v] = d.Contract.Secrets[v]
	}
	return a.ForNetwork(n, injected)
}

// ForNetwork makes the egress of one sandbox; nil: the network allows nothing. secrets are named by the sandbox's
// variables. A secret that is injected for a host of the network goes into requests to that host, and its variable
// holds a placeholder.
func (a *Assembler) ForNetwork(n contract.Network, secrets map[string]secret.Ref) (*Egress, error) {
	lines := n.Allow
	if n.Internal {
		lines = a.Config.Internal
	}
	return a.ForLines(lines, n, secrets)
}

// ForLines makes an egress to the hosts of lines and to the packages of n. With n.Internal it also reaches private
// addresses of the operator's network.
func (a *Assembler) ForLines(lines []string, n contract.Network, secrets map[string]secret.Ref) (*Egress, error) {
	if len(lines)+len(n.Packages) == 0 && !n.Public {
		return nil, nil
	}
	rules, err := egress.ParseRules(lines)
	if err != nil {
		return nil, err
	}
	for i := range rules {
		rules[i].Internal = n.Internal
	}
	if n.Public {
		rules, lines = append(rules, egress.Public()), append(slices.Clone(lines), "*")
	}
	from, env, err := a.registries(n)
	if err != nil {
		return nil, err
	}
	for _, r := range from {
		lines = append(slices.Clone(lines), "GET,HEAD "+r.Host.String()+r.Paths[0])
	}
	p := a.policy(append(rules, from...), n.Limits)
	if p.Off, err = egress.ParseRules(n.Off); err != nil {
		return nil, err
	}
	e := &Egress{Hosts: slices.Clone(lines), Env: env}
	var o egress.Options
	if o.Credentials, err = a.credentials(e, p, secrets); err != nil {
		return nil, err
	}
	if len(from) > 0 {
		if o.Cache, err = pkgcache.Open(filepath.Join(a.State, "cache"), cacheBytes); err != nil {
			return nil, fmt.Errorf("package cache: %w", err)
		}
	}
	if e.Server, err = egress.NewServer(&egress.Dialer{Policy: p}, o); err != nil {
		return nil, err
	}
	if ours := e.Server.Trust(); ours != nil {
		if err := a.trust(e, ours); err != nil {
			return nil, errors.Join(fmt.Errorf("CA bundle of the sandbox: %w", err), e.End())
		}
	}
	if r, ok := n.Packages[string(packages.Debian)]; ok {
		if err := a.apt(e, r); err != nil {
			return nil, errors.Join(fmt.Errorf("configuration of apt: %w", err), e.End())
		}
	}
	return e, nil
}

// policy is the egress policy of one sandbox.
func (a *Assembler) policy(rules []egress.Rule, l contract.Traffic) *egress.Policy {
	return &egress.Policy{Rules: rules, Addresses: a.Config.Addresses, Limits: egress.Limits{
		Bytes: int64(l.Bytes), BytesPerSec: int64(l.BytesPerSecond), PerSec: l.RequestsPerSecond, Conns: l.Connections}}
}

// credentials returns the secrets that egress injects, and gives the sandbox their placeholders. It leaves out secrets
// of hosts that the policy does not allow, so that their variables are absent. Where a program would have its login
// renewed, the policy gets waldo's own answer.
func (a *Assembler) credentials(
	e *Egress, p *egress.Policy, secrets map[string]secret.Ref,
) (creds []egress.Credential, err error) {
	for v, ref := range secrets {
		b := a.Config.Secrets[string(ref)].Inject
		if b == nil {
			continue
		}
		c := a.credential(ref, *b)
		if p.Classify(c.Host, c.Port) != nil {
			continue
		}
		creds = append(creds, c)
		if c.As != egress.Postgres {
			e.Secret = append(e.Secret, c.Host)
		}
		e.Env = append(e.Env, v+"="+c.Placeholder)
		if b.Renew != "" {
			r, err := egress.ParseRule(b.Renew)
			if err != nil {
				return nil, err
			}
			r.Reply = &egress.Reply{Body: []byte(b.Renewed), Fresh: c.Value}
			p.Rules = append(p.Rules, r)
		}
		if c.As == egress.SigV4 {
			e.Env = append(e.Env, "AWS_ACCESS_KEY_ID=waldo", "AWS_REGION="+c.Region, "AWS_DEFAULT_REGION="+c.Region)
		}
	}
	return creds, nil
}

// injections maps the words of waldo.yaml to the ways in which egress adds a secret to a request.
var injections = map[string]egress.AuthScheme{
	"header": egress.Header, "bearer": egress.Bearer, "basic": egress.Basic, "query": egress.Query,
	"sigv4": egress.SigV4, "postgres": egress.Postgres,
}

// credential describes one secret to egress, which fetches it at each use.
func (a *Assembler) credential(ref secret.Ref, b contract.Inject) egress.Credential {
	from := func(r secret.Ref) func() (secret.Value, error) {
		if r == "" {
			return nil
		}
		return func() (secret.Value, error) { return a.Secret(r) }
	}
	return egress.Credential{
		Name: string(ref), Placeholder: cmp.Or(b.Placeholder, egress.NewPlaceholder()), Quoted: b.Placeholder != "", Host: b.Host, Port: uint16(b.Port), Methods: b.Methods,
		Paths: b.Paths, As: injections[b.As], Field: b.Name + b.User, Region: b.Region, Service: b.Service,
		Database: b.Database, Plain: b.Plain, Value: from(ref), KeyID: from(b.Key), Token: from(b.Token),
	}
}

// bundleAt is the CA bundle in a sandbox.
const bundleAt = "/run/waldo/ca.pem"

// bundleVariables name the CA bundle to programs: OpenSSL and Go, curl, Python's requests, pip, Node.js, npm, git,
// Deno, cargo, and the AWS command line.
var bundleVariables = []string{
	"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "npm_config_cafile",
	"GIT_SSL_CAINFO", "DENO_CERT", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE",
}

// trust shows a sandbox a CA bundle: the authorities of this machine, and the egress's own.
func (a *Assembler) trust(e *Egress, ours []byte) error {
	for _, v := range bundleVariables {
		e.Env = append(e.Env, v+"="+bundleAt)
	}
	return a.show(e, bundleAt, slices.Concat(authorities(), ours))
}

// show puts a file into a sandbox, for all of it to read.
func (a *Assembler) show(e *Egress, target string, text []byte) error {
	dir := filepath.Join(a.State, "run")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "trust-*.pem")
	if err != nil {
		return err
	}
	e.shown = append(e.shown, f)
	_, _ = safefile.TryLock(f, false) // until it is closed
	_, err = f.Write(text)
	e.Mounts = append(e.Mounts, sandbox.Mount{Source: f.Name(), Target: target})
	return errors.Join(err, f.Chmod(0o444))
}

// Sweep removes the files for sandboxes that processes of waldo left behind which were killed. It leaves those of the last
// minute: one that is being made has no lock yet.
func Sweep(state string, now time.Time) error {
	left, err := filepath.Glob(filepath.Join(state, "run", "trust-*.pem"))
	for _, name := range left {
		st, gone := os.Lstat(name)
		if gone != nil || !st.Mode().IsRegular() || now.Sub(st.ModTime()) < time.Minute {
			continue
		}
		f, gone := os.Open(name)
		if gone != nil {
			continue
		}
		if free, _ := safefile.TryLock(f, false); free {
			err = errors.Join(err, os.Remove(name))
		}
		_ = f.Close() // it was only read
	}
	return err
}

// authorities returns the certificates that this machine trusts, in PEM, from the files that crypto/x509 reads too.
func authorities() []byte {
	for _, name := range []string{os.Getenv("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt",
		"/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/ssl/ca-bundle.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem"} {
		if b, err := os.ReadFile(name); name != "" && err == nil {
			return append(bytes.TrimRight(b, "\n"), '\n')
		}
	}
	return nil
}
