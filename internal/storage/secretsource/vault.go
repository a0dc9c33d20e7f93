package secretsource

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"waldo/internal/model/secret"
)

// Vault reads from HashiCorp Vault or OpenBao, secrets engines KV version 1 and 2, with a token or
// as an AppRole. Set the fields before it is used.
type Vault struct {
	Address   string                       // https://vault.example.com:8200; http on this machine alone
	Namespace string                       // of Vault Enterprise; "": none
	Token     func() (secret.Value, error) // nil: AppRole
	RoleID    string
	SecretID  func() (secret.Value, error)
	Roots     *x509.CertPool                        // nil: the machine's own
	Learned   func(name secret.Ref, v secret.Value) // gets the token of a login; may be nil

	mu     sync.Mutex
	client *http.Client
	token  secret.Value // of the last login
	until  time.Time
	mounts map[string]mount // by path that was asked for
}

// mount is the path and the kind of a secrets engine.
type mount struct {
	path    string // with a slash at its end
	version string // "2", else 1
}

// Errors of Vault, none of which says what it answered.
var (
	errVaultDenied  = errors.New("Vault does not allow it: permission denied")
	errVaultLogin   = errors.New("Vault does not accept the token, role id or secret id")
	errVaultAnswer  = errors.New("Vault answers in a way that is not understood")
	errVaultAddress = errors.New("set VAULT_ADDR to an https address (http on this machine alone)")
	errVaultText    = errors.New("the field in Vault is not text")
)

func (s Sources) fromVault(p secret.Place) (fetched, error) {
	if s.Vault == nil {
		return fetched{}, fmt.Errorf("%w: %w", ErrClosed, errVaultAddress)
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchPatience)
	defer cancel()
	return s.Vault.read(ctx, p)
}

// host is the part of the address that may be shown.
func (v *Vault) host() string {
	u, err := url.Parse(v.Address)
	if err != nil {
		return "an invalid address"
	}
	return u.Host
}

// read fetches one field. A login that has become bad is made anew once.
func (v *Vault) read(ctx context.Context, p secret.Place) (fetched, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.open(); err != nil {
		return fetched{}, err
	}
	got, err := v.field(ctx, p)
	if errors.Is(err, errVaultDenied) && v.Token == nil && !v.token.IsZero() {
		v.token = secret.Value{}
		got, err = v.field(ctx, p)
	}
	return got, err
}

// open checks the address and makes the client, which follows nothing: a redirect would carry the
// token elsewhere.
func (v *Vault) open() error {
	if v.client != nil {
		return nil
	}
	u, err := url.Parse(v.Address)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && local(u.Hostname())) {
		return errVaultAddress
	}
	v.mounts = map[string]mount{}
	v.client = &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: v.Roots, MinVersion: tls.VersionTLS12}, Proxy: http.ProxyFromEnvironment,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return nil
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// field asks for the secret at a path and takes one field of it.
func (v *Vault) field(ctx context.Context, p secret.Place) (fetched, error) {
	m, err := v.mount(ctx, p.Path)
	if err != nil {
		return fetched{}, err
	}
	rest := strings.TrimPrefix(p.Path+"/", m.path)
	at := m.path + strings.TrimSuffix(rest, "/")
	if m.version == "2" {
		at = m.path + "data/" + strings.TrimSuffix(rest, "/")
	}
	var answer struct {
		Lease int                        `json:"lease_duration"`
		Data  map[string]json.RawMessage `json:"data"`
	}
	if err := v.ask(ctx, http.MethodGet, at, nil, &answer); err != nil {
		return fetched{}, err
	}
	data := answer.Data
	if m.version == "2" {
		data = nil
		if json.Unmarshal(answer.Data["data"], &data) != nil {
			return fetched{}, ErrMissing
		}
	}
	raw, ok := data[p.Name]
	if !ok {
		return fetched{}, ErrMissing
	}
	var text *string
	if json.Unmarshal(raw, &text) != nil || text == nil {
		return fetched{}, errVaultText
	}
	got := fetched{value: secret.NewValue(*text), lasts: vaultLasts}
	if lease := time.Duration(answer.Lease) * time.Second; lease > 0 && lease < got.lasts {
		got.lasts = lease
	}
	return got, nil
}

// mount asks what secrets engine a path belongs to, as Vault's own command does.
func (v *Vault) mount(ctx context.Context, path string) (mount, error) {
	if m, ok := v.mounts[path]; ok {
		return m, nil
	}
	var answer struct {
		Data struct {
			Path    string `json:"path"`
			Type    string `json:"type"`
			Options struct {
				Version string `json:"version"`
			} `json:"options"`
		} `json:"data"`
	}
	if err := v.ask(ctx, http.MethodGet, "sys/internal/ui/mounts/"+path, nil, &answer); err != nil {
		return mount{}, err
	}
	m := mount{answer.Data.Path, answer.Data.Options.Version}
	if !strings.HasSuffix(m.path, "/") || !strings.HasPrefix(path+"/", m.path) ||
		answer.Data.Type != "kv" && answer.Data.Type != "generic" {
		return mount{}, errors.New("no secrets engine KV is mounted there")
	}
	v.mounts[path] = m
	return m, nil
}

// login returns the token to ask with.
func (v *Vault) login(ctx context.Context) (secret.Value, error) {
	if v.Token != nil {
		return v.Token()
	}
	if !v.token.IsZero() && time.Now().Before(v.until) {
		return v.token, nil
	}
	if v.RoleID == "" || v.SecretID == nil {
		return secret.Value{}, errors.New("set VAULT_TOKEN, or VAULT_ROLE_ID and VAULT_SECRET_ID")
	}
	id, err := v.SecretID()
	if err != nil {
		return secret.Value{}, err
	}
	body, err := json.Marshal(map[string]string{"role_id": v.RoleID, "secret_id": id.Reveal()})
	if err != nil {
		return secret.Value{}, errVaultLogin
	}
	var answer struct {
		Auth struct {
			Token string `json:"client_token"`
			Lease int    `json:"lease_duration"`
		} `json:"auth"`
	}
	if err := v.send(ctx, http.MethodPost, "auth/approle/login", secret.Value{}, body, &answer); err != nil {
		if errors.Is(err, errVaultDenied) || errors.Is(err, errVaultAnswer) {
			err = errVaultLogin
		}
		return secret.Value{}, err
	}
	if answer.Auth.Token == "" {
		return secret.Value{}, errVaultLogin
	}
	v.token = secret.NewValue(answer.Auth.Token)
	lease := time.Duration(answer.Auth.Lease) * time.Second
	if lease <= 0 {
		lease = time.Hour
	}
	v.until = time.Now().Add(lease * 2 / 3)
	if v.Learned != nil {
		v.Learned("vault:approle/login#client_token", v.token)
	}
	return v.token, nil
}

func (v *Vault) ask(ctx context.Context, method, path string, body []byte, out any) error {
	token, err := v.login(ctx)
	if err != nil {
		return err
	}
	return v.send(ctx, method, path, token, body, out)
}

// send makes one request of at most 1 MiB back.
func (v *Vault) send(ctx context.Context, method, path string, token secret.Value, body []byte, out any) error {
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(v.Address, "/")+"/v1/"+path,
		bytes.NewReader(body))
	if err != nil {
		return errVaultAddress
	}
	r.Header.Set("X-Vault-Request", "true")
	if v.Namespace != "" {
		r.Header.Set("X-Vault-Namespace", v.Namespace)
	}
	if !token.IsZero() {
		r.Header.Set("X-Vault-Token", token.Reveal())
	}
	resp, err := v.client.Do(r)
	if err != nil {
		return errors.New("Vault does not answer") // the library's reason may quote a header
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return errors.New("Vault does not answer to the end")
	case resp.StatusCode == http.StatusForbidden:
		return errVaultDenied
	case resp.StatusCode == http.StatusNotFound:
		return ErrMissing
	case resp.StatusCode == http.StatusServiceUnavailable:
		return errors.New("Vault is sealed or in maintenance")
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return errors.New("Vault points elsewhere, which is not followed: name its active address")
	case resp.StatusCode != http.StatusOK || json.Unmarshal(text, out) != nil:
		return errVaultAnswer
	}
	return nil
}
