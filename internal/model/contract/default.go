package contract

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// builtIns are the names of waldo's own capabilities.
var builtIns = []string{"run_python", "run_javascript", "run_typescript", "run_shell", "exec", readOutput}

// readOutput reads a file of the session's workspace: a read, and no program runs.
const readOutput = "read_output"

// byTheGateway are the names of waldo's own tools that the gateway answers itself, some in the lean mode
// alone. They need no contract.
var byTheGateway = []string{"search_tools", "call_tool", "run_code"}

// ByTheGateway reports whether a name is that of a tool which the gateway answers itself.
func ByTheGateway(name string) bool { return slices.Contains(byTheGateway, name) }

// Own returns the names of waldo's own tools and capabilities, which no tool of a server may have.
func Own() []string { return slices.Concat(builtIns, byTheGateway) }

func builtIn(capability string) bool { return slices.Contains(builtIns, capability) }

// BuiltIns returns the contracts of waldo's own capabilities: high risk, in a namespace sandbox, without approval,
// network or secrets. Of the host's files they see only the session's workspace. They apply only without a
// configuration: a file that does not name one of them denies it.
func BuiltIns() []Contract {
	var out []Contract
	for _, name := range builtIns {
		mode, danger := HighRisk, 3
		if name == readOutput {
			mode, danger = Read, 1
		}
		out = append(out, Contract{
			Pattern: name, At: Position{File: "built-in"}, BuiltIn: true,
			Transport: SandboxedExec, Mode: mode, Danger: danger, Isolation: "namespace", Filesystem: WorkspaceOnly,
			Timeout: 30 * time.Second, ResponseBudget: 64 << 10,
			Approval: Approval{When: Never, At: Position{File: "built-in"}},
			Log:      "full", Trust: "untrusted", Redact: []string{"secrets"},
		})
	}
	return out
}

// Default returns the configuration without a file: the built-in capabilities.
func Default() *Config {
	return &Config{
		Servers:   map[string]Server{},
		Secrets:   map[string]Secret{},
		Contracts: BuiltIns(),
		Redaction: Redaction{Model: []string{"secrets"}},
		Approval:  Approvals{Timeout: time.Hour, Roles: map[string][]string{}, Carriers: []string{"console", "terminal"}},
	}
}

// Init returns the text that `waldo init` writes as waldo.yaml in folder: tight, commented, and
// free of warnings. Beside it belongs Schema as waldo.schema.json, for editors.
func Init(folder string) []byte {
	name := strings.Map(func(r rune) rune {
		if hidden(r) || r < ' ' || r == utf8.RuneError {
			return '_'
		}
		return r
	}, filepath.Base(folder))
	return []byte(strings.Replace(initial, "FOLDER", cut(name, 60), 1))
}

const initial = `# yaml-language-server: $schema=waldo.schema.json
# What an agent may touch in FOLDER. What is not written here is denied; what is
# not said in an entry takes its strictest reading. ` + "`waldo check`" + ` reads it, ` + "`waldo explain`" + ` says why.
version: 1
environment: development

# Upstream MCP servers. A command runs in a sandbox of its own: no network, no files, no secrets.
# servers:
#   github:
#     command: [github-mcp-server, stdio]
#     secrets: {GITHUB_TOKEN: "env:GITHUB_TOKEN_READ"}

capabilities:
  # Agent-written code: a throw-away sandbox without network and secrets. Of this machine's files it
  # sees its own workspace, and what it writes to /workspace/output is kept there.
  # To deny one of these, write its name and deny, as in   run_shell: deny
  run_python:
    transport: sandboxed_exec
    mode: high_risk
    isolation: namespace
    filesystem: workspace_only
    approval: none
    timeout_seconds: 30
    examples:
      - {args: {code: "print(1)"}, expect: allow}
  run_javascript: {transport: sandboxed_exec, mode: high_risk, isolation: namespace, filesystem: workspace_only, approval: none}
  run_typescript: {transport: sandboxed_exec, mode: high_risk, isolation: namespace, filesystem: workspace_only, approval: none}

  # Any command: waldo exec -- CMD
  exec: {transport: sandboxed_exec, mode: high_risk, isolation: namespace, filesystem: workspace_only, approval: none}

  # A shell asks a human every time. It can do no more than run_python can: this line is yours to change.
  run_shell:
    transport: sandboxed_exec
    mode: high_risk
    isolation: namespace
    network: denied
    filesystem: workspace_only
    approval: always
    timeout_seconds: 10
    examples:
      - {args: {command: ls}, expect: ask}

  # The files that the agent's code has written, one at a time.
  read_output: {transport: sandboxed_exec, mode: read, approval: none}

  # The most specific name wins and stands alone; entries never merge.
  # github.*:
  #   mode: read
  #   approval: none
  # github.create_*:
  #   mode: write
  #   approval: {when: "args.priority == 'high'", by: manager}
  #   rules:
  #     - {when: "args.public == true", danger: 3, reason: "it would be public"}
  # github.delete_*: deny

# Secrets are always hidden from the model. Personal data is shown unless you name its classes here; with tokens
# the model sees [EMAIL_1], and a tool that may see the address gets it.
# redaction: {model: [secrets, email, phone, ssn, credit_card, name, iban, crypto, ip, ipv6], tokens: true}

approval:
  timeout: 1h
  # by: {manager: ["os:1000"]}
`
