package config

import (
	"path/filepath"
	"strings"
	"unicode/utf8"

	"waldo/internal/config/strictyaml"
	"waldo/internal/model/contract"
)

// Init returns the text that `waldo init` writes as waldo.yaml in folder: tight, commented, and
// free of warnings. Beside it belongs Schema as waldo.schema.json, for editors.
func Init(folder string) []byte {
	name := strings.Map(func(r rune) rune {
		if strictyaml.Hidden(r) || r < ' ' || r == utf8.RuneError {
			return '_'
		}
		return r
	}, filepath.Base(folder))
	return []byte(strings.Replace(initial, "FOLDER", contract.Cut(name, 60), 1))
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
