package contract

import (
	"reflect"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"waldo/internal/model/secret"
)

// Normal returns the configuration as YAML in one spelling: the file's content in its order, with shorthands
// expanded. Parsing it again gives the same decisions.
func (c *Config) Normal() ([]byte, error) {
	root := mapping()
	root.put("version", 1)
	if c.Environment != "" {
		root.put("environment", c.Environment)
	}
	if len(c.Servers) > 0 {
		servers := map[string]any{}
		for name, s := range c.Servers {
			servers[name] = s.normal()
		}
		root.put("servers", servers)
	}
	if len(c.Secrets) > 0 {
		secrets := map[string]any{}
		for name, s := range c.Secrets {
			secrets[name] = s.normal()
		}
		root.put("secrets", secrets)
	}
	entries := mapping()
	for _, e := range c.Contracts {
		switch {
		case e.BuiltIn:
		case e.Denied:
			entries.put(e.Pattern, "deny")
		default:
			entries.put(e.Pattern, e.normal())
		}
	}
	if len(entries.Content) > 0 {
		root.put("capabilities", entries)
	}
	if len(c.Internal) > 0 {
		root.put("internal", c.Internal)
	}
	if len(c.Addresses) > 0 {
		root.put("addresses", c.addresses())
	}
	root.put("redaction", map[string]any{"model": c.Redaction.Model, "tokens": c.Redaction.Tokens})
	approval := map[string]any{"timeout": c.Approval.Timeout.String(), "carriers": c.Approval.Carriers}
	if len(c.Approval.Roles) > 0 {
		approval["by"] = c.Approval.Roles
	}
	if len(c.Approval.Notify) > 0 {
		approval["notify"], approval["notify_arguments"] = c.Approval.Notify, c.Approval.NotifyArguments
	}
	if c.Approval.Root != "" {
		approval["root"] = c.Approval.Root
	}
	root.put("approval", approval)
	if c.Log.Keep > 0 {
		root.put("log", map[string]any{"keep": strconv.Itoa(int(c.Log.Keep/time.Hour)) + "h"})
	}
	if g := c.Gateway.normal(); len(g) > 0 {
		root.put("gateway", g)
	}
	room := map[string]any{}
	putIf(room, "memory_percent", c.Sandboxes.MemoryPercent, c.Sandboxes.MemoryPercent > 0)
	putIf(room, "per_principal", c.Sandboxes.PerPrincipal, c.Sandboxes.PerPrincipal > 0)
	putIf(room, "wait", c.Sandboxes.Wait.String(), c.Sandboxes.Wait > 0)
	if len(room) > 0 {
		root.put("sandboxes", room)
	}
	return yaml.Marshal(root.Node)
}

// ordered is a mapping that keeps the order of its keys.
type ordered struct{ *yaml.Node }

func mapping() ordered { return ordered{&yaml.Node{Kind: yaml.MappingNode}} }

func (o ordered) put(key string, v any) {
	k, n := &yaml.Node{}, &yaml.Node{}
	_ = k.Encode(key) // text always encodes
	if m, ok := v.(ordered); ok {
		n = m.Node
	} else {
		_ = n.Encode(v) // as do lists and mappings of text, numbers and true or false
	}
	o.Content = append(o.Content, k, n)
}

// Same reports whether the two entries say the same, wherever in a file.
func (s Server) Same(o Server) bool {
	return s.Name == o.Name && reflect.DeepEqual(s.normal(), o.normal()) && reflect.DeepEqual(s.Network, o.Network)
}

func (s Server) normal() map[string]any {
	m := map[string]any{"placement": s.Placement, "idle_timeout": s.IdleTimeout.String()}
	putIf(m, "command", s.Command, len(s.Command) > 0)
	putIf(m, "url", s.URL, s.URL != "")
	putIf(m, "names", "plain", s.Plain)
	putIf(m, "per_session", true, s.PerSession)
	if l := s.Limits.normal(); len(l) > 0 {
		m["limits"] = l
	}
	if a := s.Asks.normal(); len(a) > 0 {
		m["server_requests"] = a
	}
	putIf(m, "secrets", refTexts(s.Secrets), len(s.Secrets) > 0)
	putIf(m, "env", s.Env, len(s.Env) > 0)
	putIf(m, "data", s.Data, s.Data != "")
	mounts := map[string]any{}
	for _, x := range s.Mounts {
		if mounts[x.Target] = x.From; x.Writable {
			long := map[string]any{"from": x.From, "writable": true}
			putIf(long, "git", true, x.Git)
			mounts[x.Target] = long
		}
	}
	if s.Input != "" {
		mounts["input"] = s.Input
	}
	putIf(m, "mounts", mounts, len(mounts) > 0)
	if a := s.Auth.normal(); len(a) > 0 {
		m["auth"] = a
	}
	putIf(m, "network", s.Network.normal(), len(s.Network.Allow) > 0)
	return m
}

func (a Asks) normal() map[string]any {
	m, modes := map[string]any{}, []string{}
	if a.Form {
		modes = append(modes, "form")
	}
	if a.URL {
		modes = append(modes, "url")
	}
	putIf(m, "elicitation", modes, len(modes) > 0)
	putIf(m, "sampling", true, a.Sampling)
	putIf(m, "roots", "host", a.HostRoots)
	putIf(m, "roots", a.Roots, len(a.Roots) > 0)
	return m
}

func putIf(m map[string]any, key string, v any, when bool) {
	if when {
		m[key] = v
	}
}

func refTexts(refs map[string]secret.Ref) map[string]string {
	out := map[string]string{}
	for k, v := range refs {
		out[k] = string(v)
	}
	return out
}

// normal writes the keys that were written, and no others: an absent key has its own reason.
func (c Contract) normal() ordered {
	o := mapping()
	for _, k := range namesOf(inEntry) {
		if _, written := c.Keys[k]; written {
			if v := c.value(k); v != nil {
				o.put(k, v)
			}
		}
	}
	return o
}

func (c Contract) value(key string) any {
	switch key {
	case "transport":
		return string(c.Transport)
	case "mode":
		return c.Mode.String()
	case "danger":
		return c.Danger
	case "isolation":
		if c.Isolation == isolationFor(c.Mode) {
			return "auto"
		}
		return c.Isolation
	case "server":
		return c.Server
	case "tool":
		return c.Tool
	case "network":
		return c.Network.normal()
	case "packages":
		return c.Network.packages()
	case "filesystem":
		return [...]string{"none", "workspace_only"}[c.Filesystem%2]
	case "template":
		return c.Template
	case "limits":
		return c.Run.normal()
	case "input":
		return c.Input
	case "env":
		return c.Env
	case "root":
		return c.Root
	case "allow":
		return c.Programs
	case "secrets":
		if len(c.Secrets) == 0 {
			return "none"
		}
		for v, ref := range c.Secrets {
			if v == string(ref) && len(c.Secrets) == 1 {
				return v
			}
		}
		return refTexts(c.Secrets)
	case "reveal":
		return c.Reveal
	case "environments":
		return c.Environments
	case "timeout_seconds":
		return int(c.Timeout / time.Second)
	case "retry":
		return map[string]any{"max": c.Retry.Max, "on": c.Retry.On}
	case "rate_limit":
		return map[string]any{"calls": c.RateLimit.Calls, "per": c.RateLimit.Per.String()}
	case "concurrency":
		return c.Concurrency
	case "response_budget_bytes":
		return c.ResponseBudget
	case "approval":
		return c.Approval.normal()
	case "rules":
		return ruleList(c.Rules)
	case "log":
		return c.Log
	case "redact":
		return c.Redact
	case "trust":
		return c.Trust
	case "examples":
		return exampleList(c.Examples)
	}
	return nil
}

func (n Network) normal() any {
	switch {
	case n.Internal:
		return "internal_only"
	case len(n.Allow) > 0:
		m := map[string]any{"allow": n.Allow}
		putIf(m, "limits", n.Limits.normal(), n.Limits != Traffic{})
		return m
	}
	return "denied"
}

func (t Traffic) normal() map[string]any {
	m := map[string]any{}
	for k, n := range map[string]int{"bytes": t.Bytes, "bytes_per_second": t.BytesPerSecond, "requests_per_second": t.RequestsPerSecond, "connections": t.Connections} {
		putIf(m, k, n, n > 0)
	}
	return m
}

func (a Approval) normal() any {
	m := map[string]string{}
	if a.By != "" {
		m["by"] = a.By
	}
	switch {
	case a.When == Never:
		return "none"
	case a.When == If:
		m["when"] = a.Condition.Source
	case a.By == "":
		return "always"
	}
	return m
}

func ruleList(rules []Rule) []any {
	var out []any
	for _, r := range rules {
		m := map[string]any{"when": r.When.Source}
		putIf(m, "danger", r.Danger, r.Danger > 0)
		putIf(m, "deny", true, r.Deny)
		putIf(m, "reason", r.Reason, r.Reason != "")
		out = append(out, m)
	}
	return out
}

func exampleList(examples []Example) []any {
	var out []any
	for _, x := range examples {
		m := map[string]any{"capability": x.Capability, "expect": x.Expect}
		putIf(m, "args", x.Args, x.Args != nil)
		out = append(out, m)
	}
	return out
}
