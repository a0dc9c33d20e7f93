// Package config reads waldo.yaml. One declaration per key gives the reader, the JSON Schema and the
// reference page. A line that is not there takes its most restrictive reading; a line that this build cannot enforce
// is an error.
//
//go:generate env WALDO_UPDATE=1 go test -run TestGenerated .
package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"waldo/internal/config/outline"
	"waldo/internal/config/strictyaml"
	"waldo/internal/model/contract"
)

// Load reads a regular file of at most 1 MiB and returns what Parse makes of it. The error is of
// type Problems where the file could be read.
func Load(file string) (*contract.Config, error) { return LoadIn(file, "") }

// LoadIn is Load in an environment that the operator selects instead of the file's; empty: the file's.
func LoadIn(file, environment string) (*contract.Config, error) {
	text, err := ReadFile(file)
	if err != nil {
		return nil, err
	}
	cfg, problems := ParseIn(file, text, environment)
	if len(problems) > 0 {
		return nil, problems
	}
	return cfg, nil
}

// ReadFile returns the text of a configuration file: a regular file of at most 1 MiB.
func ReadFile(file string) ([]byte, error) {
	st, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, strictyaml.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return text, nil
}

// Parse parses the text of a waldo.yaml; name is only shown in positions. With any problem it returns no
// configuration. Warnings are in Config.Warnings. policy.New compiles the conditions.
func Parse(name string, text []byte) (*contract.Config, contract.Problems) {
	return ParseIn(name, text, "")
}

// ParseIn is Parse in an environment that the operator selects instead of the file's; empty: the file's.
func ParseIn(name string, text []byte, environment string) (*contract.Config, contract.Problems) {
	p := &parser{Reader: strictyaml.Reader{File: name, Hints: map[*yaml.Node]string{}}, cfg: Default()}
	p.cfg.File, p.cfg.Digest = name, digest(text)
	p.cfg.Contracts = nil
	if n := p.Document(text); n != nil {
		file.read(p, field{Val: n}, p.cfg)
	}
	p.environment(environment)
	p.chooseSecrets()
	if len(p.Problems) == 0 {
		p.check()
	}
	if len(p.Problems) > 0 {
		p.Problems.Sort()
		p.Problems.Cover()
		return nil, p.Problems
	}
	p.complete()
	p.Warnings.Sort()
	p.cfg.Warnings = p.Warnings
	return p.cfg, nil
}

func digest(b []byte) string {
	s := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(s[:])
}

// environment selects where the contracts hold, and remembers which environments the file knows.
func (p *parser) environment(selected string) {
	if p.cfg.Environment != "" {
		p.known = append(p.known, p.cfg.Environment)
	}
	if selected == "" {
		return
	}
	if !isLabel(selected) {
		p.against(contract.Position{File: p.File}, "value.name", "letters, digits, - and _, beginning with a letter",
			"the selected environment cannot be "+contract.Cut(selected, 40))
		return
	}
	p.selected = selected
	p.cfg.Environment, p.known = selected, append(p.known, selected)
}

type parser struct {
	strictyaml.Reader
	cfg    *contract.Config
	user   string            // who wants the secrets that are read
	keepAt contract.Position // of log.keep
	openAt *yaml.Node        // of gateway.listen beyond this machine; nil: it is not
	ports  []ownPort         // lines that name ports of this machine
	known  []string          // environments that are selected, or that environment: names
	// the environment that the operator selects in place of the file's; empty: none
	selected string
}

// builtIns returns the contracts of waldo's own capabilities: high risk, in a namespace sandbox, without approval,
// network or secrets. They see no files of the host but the session's workspace. They apply only without a
// configuration: a file that does not name one of them denies it.
func builtIns() []contract.Contract {
	var out []contract.Contract
	for _, name := range contract.BuiltIns() {
		mode, danger := contract.HighRisk, 3
		if name == contract.ReadOutput {
			mode, danger = contract.Read, 1
		}
		out = append(out, contract.Contract{
			Pattern: name, At: contract.Position{File: "built-in"}, BuiltIn: true,
			Transport: contract.SandboxedExec, Mode: mode, Danger: danger, Isolation: contract.UsualIsolation,
			Filesystem: contract.WorkspaceOnly,
			Timeout:    30 * time.Second, ResponseBudget: 64 << 10,
			Approval: contract.Approval{When: contract.Never, At: contract.Position{File: "built-in"}},
			Log:      "full", Trust: "untrusted", Redact: []string{"secrets"},
		})
	}
	return out
}

// Default returns the configuration without a file: the built-in capabilities.
func Default() *contract.Config {
	c := &contract.Config{
		Servers:   map[string]contract.Server{},
		Secrets:   map[string]contract.Secret{},
		Webhooks:  map[string]contract.Webhook{},
		Contracts: builtIns(),
		Redaction: contract.Redaction{Model: []string{"secrets"}},
		Approval:  contract.Approvals{Roles: map[string][]string{}},
	}
	approvals.defaults(&c.Approval)
	return c
}

// Schema returns the JSON Schema (draft 7) of waldo.yaml.
func Schema() []byte { return outline.Schema(file.outline()) }
