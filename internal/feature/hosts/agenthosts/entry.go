package agenthosts

import (
	"errors"
	"fmt"
)

// Gateway is how a host reaches waldo: a command, or an address.
type Gateway struct {
	Command  []string // program and arguments
	URL      string
	TokenEnv string // with URL: the variable of the host's environment that holds the token
}

// ErrNoHTTP says that a host's file has no form for a server at an address.
var ErrNoHTTP = errors.New("it starts its servers itself and takes no address")

// Entry returns what this host writes for the gateway.
func (h *Host) Entry(g Gateway) (Value, error) {
	if g.URL == "" {
		return h.local(text(g.Command[0]), texts(g.Command[1:])), nil
	}
	return h.remote(g)
}

func (h *Host) local(program, args Value) Value {
	switch h.Name {
	case "claude", "vscode":
		return mapping("type", text("stdio"), "command", program, "args", args)
	case "opencode":
		args.Items = append([]Value{program}, args.Items...)
		return mapping("type", text("local"), "command", args, "enabled", yes)
	case "goose":
		return mapping("name", text("waldo"), "enabled", yes, "type", text("stdio"), "cmd", program, "args", args, "timeout",
			Value{Kind: Number, Text: "300"})
	}
	return mapping("command", program, "args", args)
}

func (h *Host) remote(g Gateway) (Value, error) {
	bearer := func(variable string) []any {
		if g.TokenEnv == "" {
			return nil
		}
		return []any{"headers", mapping("Authorization", text("Bearer "+fmt.Sprintf(variable, g.TokenEnv)))}
	}
	url := text(g.URL)
	switch h.Name {
	case "claude":
		return mapping(append([]any{"type", text("http"), "url", url}, bearer("${%s}")...)...), nil
	case "vscode":
		return mapping(append([]any{"type", text("http"), "url", url}, bearer("${env:%s}")...)...), nil
	case "cursor":
		return mapping(append([]any{"url", url}, bearer("${env:%s}")...)...), nil
	case "gemini":
		return mapping(append([]any{"httpUrl", url}, bearer("$%s")...)...), nil
	case "opencode":
		return mapping(append([]any{"type", text("remote"), "url", url, "enabled", yes}, bearer("{env:%s}")...)...), nil
	case "codex":
		if g.TokenEnv != "" {
			return mapping("url", url, "bearer_token_env_var", text(g.TokenEnv)), nil
		}
		return mapping("url", url), nil
	case "goose":
		e := []any{"name", text("waldo"), "enabled", yes, "type", text("streamable_http"), "uri", url}
		if g.TokenEnv != "" {
			e = append(append(e, bearer("${%s}")...), "env_keys", texts([]string{g.TokenEnv}))
		}
		return mapping(append(e, "timeout", Value{Kind: Number, Text: "300"})...), nil
	case "zed":
		if g.TokenEnv == "" {
			return mapping("url", url), nil
		}
		return Value{}, errors.New("its file takes a token only as it is, and waldo writes no token into a file")
	}
	return Value{}, ErrNoHTTP
}

// Own reports whether an entry is part of the host itself and no server: goose lists what it is made
// of among its extensions.
func (h *Host) Own(m Member) bool {
	t := m.Value.Get("type")
	return h.Name == "goose" && t != nil &&
		(t.Text == "builtin" || t.Text == "platform" || t.Text == "frontend" || t.Text == "inline_python")
}

var yes = Value{Kind: Bool, Text: "true"}

func text(s string) Value { return Value{Kind: Text, Text: s} }

func texts(list []string) Value {
	v := Value{Kind: List}
	for _, s := range list {
		v.Items = append(v.Items, text(s))
	}
	return v
}

// mapping makes a mapping of names and values, in turn.
func mapping(pairs ...any) Value {
	v := Value{Kind: Map}
	for i := 0; i < len(pairs); i += 2 {
		v.Members = append(v.Members, Member{Name: pairs[i].(string), Value: pairs[i+1].(Value)})
	}
	return v
}

// Render returns an entry as it would stand in the host's file.
func (h *Host) Render(server string, e Value) string {
	path := append(append([]string{}, h.Under...), server)
	switch h.Format {
	case TOML:
		return renderTOML(path, &e, "\n")
	case YAML:
		return h.Under[0] + ":\n  " + Quote(server) + ":\n" + renderYAML(&e, "    ", "\n")
	}
	return nested(path, e, "", "  ", "\n") + "\n"
}
