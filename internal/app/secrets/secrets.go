// Package secrets combines the sources of secrets: those of the configuration and waldo's own store.
package secrets

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"waldo/internal/app/trust"
	"waldo/internal/core/redact"
	"waldo/internal/executor/remote"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/storage/secretsource"
	"waldo/internal/storage/secretstore"
)

// osKeyring is the keyring of this machine, for the key of the store.
type osKeyring struct{}

func (osKeyring) Get(service, account string) (string, error) {
	return secretsource.Keyring(service, account)
}
func (osKeyring) Set(service, account, value string) error {
	return secretsource.SetKeyring(service, account, value)
}

// Open opens the stored secrets of a state directory.
func Open(state string) *secretstore.Store {
	s := secretstore.Open(filepath.Join(state, "secrets"))
	s.Keyring = osKeyring{}
	return s
}

// New returns the source of secrets. Only waldo's own process fetches them, never an agent or a server. Each secret
// is registered for redaction before its first use. passphrase asks for that of a sealed file; nil: no person can
// answer.
func New(
	state string, cfg *contract.Config, known *redact.Registry, passphrase func(string) (secret.Value, error),
) *secretsource.Keeper {
	learn := func(name secret.Ref, v secret.Value) error {
		if err := known.Add(name, v); err != nil {
			slog.Warn("a secret is short", "secret", string(name), "why", err)
		}
		return nil
	}
	k := &secretsource.Keeper{Learned: learn, Specs: map[secret.Ref]secret.Spec{}, Sources: secretsource.Sources{
		Env: os.LookupEnv, Files: true, Commands: true, Keyring: secretsource.Keyring, Stored: stored(state),
		Identity: os.Getenv("WALDO_AGE_IDENTITY"),
		Vault:    vault(func(name secret.Ref, v secret.Value) { _ = learn(name, v) }),
	}}
	k.Sources.Passphrase = passphrase
	k.Sources.Prepare = func(command []string) ([]string, string, error) { return trust.Prepare(state, cfg, command) }
	for name, s := range cfg.Secrets {
		k.Specs[secret.Ref(name)] = s.Spec
	}
	return k
}

// stored reads a secret that a configuration names. It refuses the login of a server, with its refresh token and the
// key of its proofs: waldo alone uses it.
func stored(state string) func(name string) (secret.Value, error) {
	s := Open(state)
	return func(name string) (secret.Value, error) {
		if remote.IsLogin(name) {
			return secret.Value{}, fmt.Errorf("%w: %s is the login of a server, which waldo alone uses",
				secretsource.ErrClosed, name)
		}
		return s.Get(name)
	}
}

// vault configures Vault as its own command does: VAULT_ADDR, VAULT_TOKEN or ~/.vault-token, VAULT_NAMESPACE and
// VAULT_CACERT. VAULT_ROLE_ID and VAULT_SECRET_ID select an AppRole.
func vault(learned func(secret.Ref, secret.Value)) *secretsource.Vault {
	v := &secretsource.Vault{
		Address: os.Getenv("VAULT_ADDR"), Namespace: os.Getenv("VAULT_NAMESPACE"), RoleID: os.Getenv("VAULT_ROLE_ID"),
		Learned: learned,
	}
	if v.Address == "" {
		return nil
	}
	tell := func(ref secret.Ref, of secretsource.Sources) func() (secret.Value, error) {
		return func() (secret.Value, error) {
			got, err := of.Resolve(ref)
			if err == nil {
				learned(ref, got)
			}
			return got, err
		}
	}
	v.SecretID = tell("env:VAULT_SECRET_ID", secretsource.Sources{Env: os.LookupEnv})
	if _, ok := os.LookupEnv("VAULT_TOKEN"); ok {
		v.Token = tell("env:VAULT_TOKEN", secretsource.Sources{Env: os.LookupEnv})
	} else if home, err := os.UserHomeDir(); err == nil && v.RoleID == "" {
		v.Token = tell(secret.Ref("file:"+filepath.Join(home, ".vault-token")), secretsource.Sources{Files: true})
	}
	if pem, err := os.ReadFile(os.Getenv("VAULT_CACERT")); err == nil {
		v.Roots = x509.NewCertPool()
		v.Roots.AppendCertsFromPEM(pem)
	}
	return v
}

// Named returns the names of existing secrets: in the configuration, for this environment, or in the store.
func Named(state string, cfg *contract.Config) map[string]bool {
	out := map[string]bool{}
	for name, s := range cfg.Secrets {
		out[name] = s.Spec.From != "" || len(s.Spec.Command) > 0
	}
	stored, err := Open(state).List()
	if err != nil {
		slog.Warn("the stored secrets cannot be listed", "why", err)
	}
	for _, e := range stored {
		if _, ok := out[e.Name]; !ok && !remote.IsLogin(e.Name) {
			out[e.Name] = true
		}
	}
	return out
}
