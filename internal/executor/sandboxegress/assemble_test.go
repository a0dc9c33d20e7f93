package sandboxegress

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/config"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
	"waldo/internal/network/egress"
)

// TestAddressesReachSandboxes: addresses of the configuration hold for the egress of a sandbox.
func TestAddressesReachSandboxes(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "addresses: {npm.example.com: [203.0.113.0/24]}\n": true,
		"addresses: {other.example.com: [203.0.113.0/24]}\n": false,
	} {
		cfg, problems := config.Parse("waldo.yaml", []byte("version: 1\n"+text))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		rules, err := egress.ParseRules([]string{"npm.example.com"})
		if err != nil {
			t.Fatal(err)
		}
		p := (&Assembler{Config: cfg}).policy(rules, contract.Traffic{})
		if why := p.Address("npm.example.com", 443, netip.MustParseAddr("203.0.113.80")); (why == nil) != want {
			t.Errorf("%q: %v", text, why)
		}
	}
}

// TestInjectedSecrets: a sandbox gets a placeholder for each secret of a host that it reaches, and no variable for the
// others. The CA bundle is on this machine no longer than the sandbox needs it.
func TestInjectedSecrets(t *testing.T) {
	cfg, problems := config.Parse("waldo.yaml", []byte(`version: 1
internal: [db.corp.example]
secrets:
  near: {from: "env:NEAR", inject: {host: api.example.com, as: bearer, methods: [GET], paths: [/*]}}
  far: {from: "env:FAR", inject: {host: other.example.com, as: bearer, methods: [GET], paths: [/*]}}
  plain: {from: "env:PLAIN"}
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	const value = "vQ8zT3kLm5RxW2nYp7Bd4Gh6"
	a := &Assembler{State: t.TempDir(), Config: cfg,
		Secret: func(secret.Ref) (secret.Value, error) { return secret.NewValue(value), nil }}
	secrets := map[string]secret.Ref{"NEAR": "near", "FAR": "far", "PLAIN": "plain"}
	both := []string{"api.example.com", "other.example.com"}
	for _, row := range []struct {
		network contract.Network
		hosts   []string
		want    string
	}{
		{contract.Network{Allow: both}, both, "FAR NEAR"}, // the control
		{contract.Network{Allow: both[:1]}, both[:1], "NEAR"},
		{contract.Network{Internal: true}, []string{"db.corp.example"}, ""},
	} {
		e, err := a.ForNetwork(row.network, secrets)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range e.Env {
			name, text, _ := strings.Cut(v, "=")
			if _, ours := secrets[name]; ours {
				got = append(got, name)
			}
			if strings.Contains(text, value) {
				t.Errorf("%v: the sandbox gets the secret itself: %s", row.network, name)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != row.want || !slices.Equal(e.Hosts, row.hosts) {
			t.Errorf("%v: %v at %v", row.network, got, e.Hosts)
		}
		if err := e.End(); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(a.State, "run", "*")); len(left) > 0 {
			t.Errorf("%v: %v is left", row.network, left)
		}
	}
	if e, err := a.ForNetwork(contract.Network{}, secrets); e != nil || err != nil {
		t.Errorf("a network that allows nothing: %v %v", e, err)
	}
}

// TestRecordsAttempts: an egress that reaches nothing leaves no record.
func TestRecordsAttempts(t *testing.T) {
	var e *Egress
	a := &Assembler{Record: func(string, string, []facts.Attempt) {
		t.Error("an egress that reaches nothing was recorded")
	}}
	f := facts.New()
	if a.Reached("server", "sandbox", e, &f); len(f.Network.Attempts) > 0 {
		t.Error(f.Network.Attempts)
	}
	a.Watch(t.Context(), "server", "sandbox", e) // returns at once
}
