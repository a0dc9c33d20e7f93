package contract

import (
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"waldo/internal/model/secret"
)

// Secret is one entry of secrets: a name, and its source in this environment.
type Secret struct {
	Name string
	At   Position
	Spec secret.Spec           // zero: it has no place in this environment
	In   map[string]secret.Ref // environment to place, where it was written so
	// Inject says to which requests the egress adds it; nil: to none.
	Inject *Inject
}

// SecretUse is one place of the file that wants a secret.
type SecretUse struct {
	Ref secret.Ref
	At  Position
	By  string // "server github", "capability run_python"
}

// secretEntry reads one entry of secrets. Exactly one of from, command and environments says where
// the secret is.
func (p *parser) secretEntry(e field) {
	s := Secret{Name: e.name, At: p.at(e.key)}
	if !named(e.name) || looksSecret(e.name) {
		p.fail(e.key, codeLiteral, "letters, digits, _, - and ., beginning with a letter", "this cannot be the name of a secret")
	}
	where := 0
	for _, f := range p.fields(e.val, inSecret) {
		switch f.name {
		case "from":
			where++
			s.Spec.From = p.kept(f)
		case "environments":
			where++
			for _, g := range p.entries(f) {
				if !label(g.name) {
					p.fail(g.key, "value.name", "as in production", "an environment cannot be named %q", cut(g.name, 40))
				}
				if s.In == nil {
					s.In = map[string]secret.Ref{}
				}
				s.In[g.name] = p.kept(g)
			}
		case "command":
			where++
			s.Spec.Command = p.command(f)
		case "timeout":
			s.Spec.Timeout = p.duration(f, time.Minute)
		case "refresh":
			s.Spec.Refresh = p.duration(f, 30*24*time.Hour)
		case "inject":
			s.Inject = p.inject(f)
		}
	}
	if where != 1 && e.val.Kind == yaml.MappingNode {
		p.fail(e.key, "key.missing", `as in from: "env:TOKEN"`, "a secret wants one of from, command and environments")
	}
	p.cfg.Secrets[e.name] = s
}

// chooseSecrets takes the places of this environment, when it is known which one it is.
func (p *parser) chooseSecrets() {
	for name, s := range p.cfg.Secrets {
		if s.In != nil {
			s.Spec.From = s.In[p.cfg.Environment]
			p.cfg.Secrets[name] = s
		}
	}
}

// kept parses the place of a secret; the name of another secret is refused.
func (p *parser) kept(f field) secret.Ref {
	ref := p.ref(f)
	if _, ok := ref.Place(); ref != "" && !ok {
		p.fail(f.val, "value.place", `as in "env:TOKEN" or "vault:secret/app#token"`, "%q requires the place of the secret", f.name)
	}
	return ref
}

// secretRefs reads a mapping of variable to secret and notes each use.
func (p *parser) secretRefs(f field, by string) map[string]secret.Ref {
	out := p.refs(f)
	if f.val.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(f.val.Content); i += 2 {
			p.use(out[f.val.Content[i].Value], f.val.Content[i+1], by)
		}
	}
	return out
}

func (p *parser) use(ref secret.Ref, n *yaml.Node, by string) {
	if ref != "" {
		p.cfg.SecretUses = append(p.cfg.SecretUses, SecretUse{ref, p.at(n), by})
	}
}

// entrySecrets reads the secrets of a capability: none, one by its name, or a mapping of variables.
func (p *parser) entrySecrets(f field, name string) map[string]secret.Ref {
	if f.val.Kind == yaml.MappingNode {
		return p.secretRefs(f, "capability "+name)
	}
	if f.val.Value == "none" {
		return nil
	}
	ref := p.ref(f)
	p.use(ref, f.val, "capability "+name)
	return map[string]secret.Ref{string(ref): ref}
}

// checkSecrets refuses a secret that a box would get nothing of, and one revealed that it has not.
func (p *parser) checkSecrets(c *Contract) {
	at := c.Keys["reveal"]
	for _, v := range c.Reveal {
		if _, ok := c.Secrets[v]; !ok {
			p.against(at, "reveal.unknown", "name a variable of secrets", "reveal names "+cut(v, 40)+", which secrets does not")
		}
	}
	if c.Resolve(representative(c.Pattern), p.cfg).Transport != SandboxedExec {
		return
	}
	for v := range c.Secrets {
		switch {
		case !secret.Variable(v):
			p.against(c.Keys["secrets"], "secret.variable", "write {VARIABLE: NAME}", "a sandbox gets a secret as a variable, and "+cut(v, 40)+" cannot name one")
		case slices.Contains(c.Reveal, v):
		case p.cfg.Secrets[string(c.Secrets[v])].Inject != nil:
			p.checkBroker(*p.cfg.Secrets[string(c.Secrets[v])].Inject, v, c.Network, c.Keys["secrets"])
		default:
			p.against(c.Keys["secrets"], "secret.kept", "add inject: {host: HOST, as: bearer} to send it to one host without exposing it, or reveal: ["+cut(v, 40)+"] to expose it",
				"the secret "+cut(v, 40)+" would not be usable in the sandbox")
		}
	}
}

// named reports whether a secret has a source: a place, or a name that is defined here.
func (cfg *Config) named(ref secret.Ref) bool {
	if _, ok := ref.Place(); ok {
		return true
	}
	s, ok := cfg.Secrets[string(ref)]
	return ok && (s.Spec.From != "" || len(s.Spec.Command) > 0)
}

func (s Secret) normal() map[string]any {
	m := map[string]any{}
	putIf(m, "from", string(s.Spec.From), s.Spec.From != "" && s.In == nil)
	putIf(m, "environments", refTexts(s.In), s.In != nil)
	putIf(m, "command", s.Spec.Command, len(s.Spec.Command) > 0)
	putIf(m, "timeout", s.Spec.Timeout.String(), s.Spec.Timeout > 0)
	putIf(m, "refresh", s.Spec.Refresh.String(), s.Spec.Refresh > 0)
	if s.Inject != nil {
		m["inject"] = s.Inject.normal()
	}
	return m
}

// Placeholders returns the variables that hold a placeholder in the sandbox: all but the revealed ones.
func (c Contract) Placeholders() (out []string) {
	for v := range c.Secrets {
		if !slices.Contains(c.Reveal, v) {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}
