package hostimport

import (
	"fmt"
	"strings"

	"waldo/internal/config/starter"
	"waldo/internal/feature/hosts/agenthosts"
	"waldo/internal/model/display"
)

// builtIns gives waldo's own capabilities, which a file must name, to a file that is new.
const builtIns = `capabilities:
  # Agent-written code and commands, in a sandbox without network and secrets.
  run_*: {transport: sandboxed_exec, mode: high_risk, isolation: namespace, filesystem: workspace_only, approval: none}` + Proposed + `
  # A shell asks a human every time.
  run_shell: {transport: sandboxed_exec, mode: high_risk, isolation: namespace, filesystem: workspace_only, approval: always}` + Proposed + `
  exec: {transport: sandboxed_exec, mode: high_risk, isolation: namespace, filesystem: workspace_only, approval: always}` + Proposed + `
  read_output: {transport: sandboxed_exec, mode: read, approval: none}` + Proposed + `
`

// Add returns the text of a waldo.yaml with the servers added after the existing ones, and proposals for their
// contracts. If a contract of the file already covers a server, its proposals become comments at the end. Existing
// bytes stay unchanged.
func Add(text []byte, servers []Server) ([]byte, error) {
	if len(strings.TrimSpace(string(text))) == 0 {
		text = []byte("# What an agent can touch. waldo denies everything else; `waldo check` reads this file.\nversion: 1\n" +
			builtIns)
		text = append(text, starter.Rules()...)
	}
	block := func(margin string) string {
		var b strings.Builder
		for _, s := range servers {
			b.WriteString(s.lines(margin))
		}
		return b.String()
	}
	live := false
	for _, s := range servers {
		live = live || s.Held == ""
	}
	var err error
	if live {
		text, err = agenthosts.InsertYAML(text, "servers", block)
	} else {
		text = append(text, "\n# servers:\n"+block("  ")...)
	}
	if err != nil {
		return nil, err
	}
	if contracts(servers, "") != "" {
		if text, err = agenthosts.InsertYAML(text, "capabilities",
			func(margin string) string { return contracts(servers, margin) }); err != nil {
			return nil, err
		}
	}
	return append(text, suggestions(servers)...), nil
}

// Noted reports whether a text has this server already as a comment, held for a reason.
func (s Server) Noted(text []byte) bool {
	from := false
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSpace(line); {
		case line == "# from "+display.ASCII(s.From):
			from = true
		case from && line == "# "+s.Name+":":
			return true
		}
	}
	return false
}

// lines writes one server as YAML; one that is held is all comments.
func (s Server) lines(margin string) string {
	var b strings.Builder
	say := func(format string, a ...any) { fmt.Fprintf(&b, margin+format+"\n", a...) }
	say("# from %s", display.ASCII(s.From))
	if s.Was != "" {
		say("# there it is called %s", display.Shell(s.Was))
	}
	for _, n := range s.Notes {
		say("# %s", display.ASCII(n.Text))
	}
	put := say
	if s.Held != "" {
		say("# NOT IN FORCE: %s", display.ASCII(s.Held))
		put = func(format string, a ...any) { say("# "+format, a...) }
	}
	put("%s:", s.Name)
	if s.URL != "" {
		put("  url: %s", quote(s.URL))
	} else {
		words := make([]string, len(s.Command))
		for i, w := range s.Command {
			words[i] = scalar(w)
		}
		put("  command: [%s]", strings.Join(words, ", "))
	}
	if s.Outside {
		put("  placement: outside    # in no sandbox, with all rights of waldo's user")
	}
	if len(s.Env) > 0 {
		put("  env:")
		for _, e := range s.Env {
			put("    %s: %s", scalar(e.Name), quote(e.Value))
		}
	}
	if len(s.Secrets) > 0 {
		put("  secrets:")
		for _, x := range s.Secrets {
			put("    %s: %s", scalar(x.Variable), quote(string(x.Ref)))
		}
	}
	if s.Bearer != nil || len(s.Headers) > 0 {
		put("  auth:")
	}
	if s.Bearer != nil {
		put("    bearer: %s", quote(string(s.Bearer.Ref)))
	}
	if len(s.Headers) > 0 {
		put("    headers:")
	}
	for _, h := range s.Headers {
		put("      %s: %s", scalar(h.Variable), quote(string(h.Ref)))
	}
	if s.Held == "" {
		s.Propose.keys(say)
	}
	if s.Beside != "" && s.Held == "" {
		say("  # mounts: {%s: %s}    # its sandbox sees the script alone; this shows the folder, read-only",
			quote(s.Beside), quote(s.Beside))
	}
	if s.URL == "" && s.Held == "" && !s.Outside && len(s.Propose.Hosts) == 0 {
		say("  # network: {allow: [HOST]}    # its sandbox reaches nothing until hosts are named")
	}
	return b.String()
}

// plainWord is a word that every YAML reader takes for the same text.
var plainWord = lazy(`^[A-Za-z][A-Za-z0-9_./-]*$`)
var vague = lazy(`(?i)^(y|n|yes|no|on|off|true|false|null)$`)

func scalar(s string) string {
	if plainWord().MatchString(s) && !vague().MatchString(s) {
		return s
	}
	return quote(s)
}

// quote returns text in YAML double quotes. It escapes unprintable characters, because no configuration may hold
// them.
func quote(s string) string {
	var b strings.Builder
	for _, r := range agenthosts.Quote(s) {
		if odd(r) {
			b.WriteString(display.Escaped(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// suggestions are proposals as comments, for servers that the file's contracts already cover: a more specific name
// would override the operator's contract.
func suggestions(servers []Server) string {
	var b strings.Builder
	for _, s := range servers {
		for _, c := range s.Propose.Contracts {
			if s.Held == "" && s.Listed {
				fmt.Fprintf(&b, "#   %s: %s%s\n", c.Pattern, c.Text, Proposed)
			}
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n# The capabilities above have contracts for these tools already. To take a line, move it there:\n" +
		b.String()
}
