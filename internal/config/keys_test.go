package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"waldo/internal/config/outline"
)

// inPlace wraps lines as the file would have them in each mapping.
var inPlace = map[string]string{
	"waldo.yaml":           "%",
	"server":               "servers: {s: {command: [a], %}}",
	"secret":               "secrets: {s: {%}}",
	"inject":               "secrets: {s: {from: \"env:S\", inject: {%}}}",
	"auth":                 "servers: {s: {url: 'https://h/', auth: {%}}}",
	"oauth":                "servers: {s: {url: 'https://h/', auth: {oauth: {%}}}}",
	"server_requests":      "servers: {s: {command: [a], server_requests: {%}}}",
	"server_limits":        "servers: {s: {command: [a], limits: {%}}}",
	"mounts":               "servers: {s: {command: [a], mounts: {%}}}",
	"mount":                "servers: {s: {command: [a], mounts: {/a: {%}}}}",
	"capability":           "capabilities: {a: {%}}",
	"run_limits":           "capabilities: {a: {limits: {%}}}",
	"network":              "capabilities: {a: {network: {%}}}",
	"limits":               "capabilities: {a: {network: {allow: [a.example.com], limits: {%}}}}",
	"packages":             "capabilities: {a: {packages: {%}}}",
	"registry":             "capabilities: {a: {packages: {npm: {%}}}}",
	"approval":             "capabilities: {a: {approval: {%}}}",
	"rule":                 "capabilities: {a: {rules: [{%}]}}",
	"retry":                "capabilities: {a: {retry: {%}}}",
	"idempotency":          "capabilities: {a: {idempotency: {%}}}",
	"settle":               "capabilities: {a: {settle: {%}}}",
	"rollback":             "capabilities: {a: {rollback: {%}}}",
	"peer":                 "peers: {s: {%}}",
	"a2a":                  "capabilities: {a: {a2a: {%}}}",
	"rate_limit":           "capabilities: {a: {rate_limit: {%}}}",
	"example":              "capabilities: {a: {examples: [{%}]}}",
	"contract mounts":      "capabilities: {exec: {mounts: {%}}}",
	"contract mount":       "capabilities: {exec: {mounts: {/p: {%}}}}",
	"redaction":            "redaction: {%}",
	"approvals":            "approval: {%}",
	"webhook":              "approval: {webhooks: [{%}]}",
	"webhooks":             "webhooks: {h: {%}}",
	"deliver":              "webhooks: {h: {scheme: slack, secret: s, deliver: {%}}}",
	"gateway":              "gateway: {%}",
	"gateway.auth":         "gateway: {auth: {%}}",
	"gateway.limits":       "gateway: {limits: {%}}",
	"gateway.console":      "gateway: {console: {%}}",
	"gateway.auth.oidc":    "gateway: {auth: {oidc: {%}}}",
	"gateway.console.oidc": "gateway: {console: {oidc: {%}}}",
	"tenant":               "tenants: {t: {%}}",
	"store":                "store: {%}",
	"blobs":                "blobs: {%}",
	"workers":              "workers: {%}",
	"log":                  "log: {%}",
	"sandboxes":            "sandboxes: {%}",
	"sessions":             "sessions: {%}",
	"telemetry":            "telemetry: {%}",
	"agent":                "agent: {%}",
	"provider":             "agent: {providers: [{%}]}",
	"agent.a2a":            "agent: {a2a: {%}, providers: [{kind: ollama, model: m}]}",
}

func at(mapping, line string) []byte {
	return []byte(strings.Replace(inPlace[mapping], "%", line, 1) + "\n")
}

// mappings are the outlines of every mapping of waldo.yaml, each once.
func mappings() []outline.Mapping {
	var all []outline.Mapping
	var collect func(outline.Mapping)
	collect = func(o outline.Mapping) {
		if slices.ContainsFunc(all, func(x outline.Mapping) bool { return x.Name == o.Name }) {
			return
		}
		all = append(all, o)
		for _, k := range o.Keys {
			for _, s := range k.Shapes {
				if s.Of != nil {
					collect(s.Of())
				}
			}
		}
	}
	collect(file.outline())
	return all
}

// Every declared key is read, by its type: a value of another type is refused, and a key beside it that does not exist is refused.
func TestEveryKeyIsRead(t *testing.T) {
	if n := len(mappings()); n != len(inPlace) {
		t.Fatalf("%d mappings are declared, %d are tried", n, len(inPlace))
	}
	for _, m := range mappings() {
		for _, k := range m.Keys {
			tryKey(t, m.Name, k)
		}
	}
}

func tryKey(t *testing.T, mapping string, k outline.Key) {
	name := mapping + "." + k.Name
	_, problems := Parse("w", at(mapping, k.Name+": [{}]"))
	switch {
	case k.By == "":
		t.Errorf("%s: declared, and no package enforces it", name)
	case problems.Has("key.unknown"):
		t.Errorf("%s: declared, unknown to the parser", name)
	case len(problems) == 0:
		t.Errorf("%s: a list of a mapping was taken for %s", name, k.Shapes[0].Name)
	}
	if _, problems := Parse("w", at(mapping, k.Name+"x: 1")); k.Name != outline.AnyPath && !problems.Has("key.unknown") {
		t.Errorf("%sx: taken: %v", name, problems)
	}
	for _, s := range k.Shapes {
		for _, w := range s.Words {
			switch {
			case s.Named:
				w = "{a: " + w + "}"
			case s.Schema["type"] == "array":
				w = "[" + w + "]"
			}
			_, problems := Parse("w", at(mapping, k.Name+": "+w))
			if problems.Has("value.unknown") || problems.Has("value.type") {
				t.Errorf("%s: %s: declared, and refused: %v", name, w, problems)
			}
		}
	}
}

// Numbers are read to their bounds in the schema and no further.
func TestBounds(t *testing.T) {
	tried := 0
	for _, m := range mappings() {
		for _, k := range m.Keys {
			low, ok := k.Shapes[0].Schema["minimum"].(int)
			if !ok {
				continue
			}
			high := k.Shapes[0].Schema["maximum"].(int)
			tried++
			for n, taken := range map[int]bool{low: true, high: true, low - 1: false, high + 1: false} {
				_, problems := Parse("w", at(m.Name, k.Name+": "+strconv.Itoa(n)))
				if problems.Has("value.range") == taken {
					t.Errorf("%s.%s: %d: taken %v: %v", m.Name, k.Name, n, !taken, problems)
				}
			}
		}
	}
	if tried < 20 {
		t.Errorf("control: only %d numbers", tried)
	}
}

// A key is required where the reader refuses its mapping without it.
func TestRequiredKeys(t *testing.T) {
	for _, m := range mappings() {
		for _, k := range m.Keys {
			if k.Required && m.Name != "mounts" && m.Name != "contract mounts" {
				if _, problems := Parse("w", at(m.Name, "")); !problems.Has("key.missing") {
					t.Errorf("%s without %s was taken: %v", m.Name, k.Name, problems)
				}
			}
		}
	}
}

// The examples of the reference page are sound and show a key of their mapping.
func TestExamplesOfTheReference(t *testing.T) {
	for _, m := range mappings() {
		if m.Example == "" {
			continue
		}
		if _, problems := Parse("w", []byte(m.Example)); len(problems) > 0 {
			t.Errorf("%s: %v\n%s", m.Name, problems, m.Example)
		}
		if !slices.ContainsFunc(m.Keys, func(k outline.Key) bool {
			return k.Name == outline.AnyPath && strings.Contains(m.Example, "{/") || strings.Contains(m.Example, k.Name+":")
		}) {
			t.Errorf("%s: no key of it in\n%s", m.Name, m.Example)
		}
	}
}

// TestEnforcers: the package in each key's enforcer column exists.
func TestEnforcers(t *testing.T) {
	for _, m := range mappings() {
		for _, k := range m.Keys {
			if k.By == "" {
				continue
			}
			if files, _ := filepath.Glob(filepath.Join("..", "..", k.By, "*.go")); !strings.HasPrefix(k.By, "internal/") ||
				len(files) == 0 {
				t.Errorf("%s.%s: %q is not a package", m.Name, k.Name, k.By)
			}
		}
	}
}

// docs/contract.md names every code of a problem.
func TestTheDocumentHasEveryCode(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "contract.md"))
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile(`"((?:file|yaml|key|value|secret|server|role|transport|network|danger|retry|rule|example` +
		`|approval|listen|config)\.[a-z_0-9]+)"`)
	for _, dir := range []string{".", "strictyaml", filepath.Join("..", "model", "contract")} {
		sources, _ := filepath.Glob(filepath.Join(dir, "*.go"))
		for _, f := range sources {
			text, err := os.ReadFile(f)
			if err != nil || strings.HasSuffix(f, "_test.go") {
				continue
			}
			for _, m := range code.FindAllStringSubmatch(string(text), -1) {
				if !strings.Contains(m[1], ".go") && !bytes.Contains(doc, []byte("`"+m[1]+"`")) {
					t.Errorf("docs/contract.md does not explain the code %s of %s", m[1], f)
				}
			}
		}
	}
}

// The schema and the reference page are what the declarations give. WALDO_UPDATE=1 writes them anew.
func TestGenerated(t *testing.T) {
	for file, want := range map[string][]byte{
		filepath.Join("schema", "waldo.schema.json"):           Schema(),
		filepath.Join("docs", "reference", "configuration.md"): reference(file.outline()),
	} {
		path := filepath.Join("..", "..", file)
		if os.Getenv("WALDO_UPDATE") != "" {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if has, err := os.ReadFile(path); err != nil || !bytes.Equal(has, want) {
			t.Errorf("%s is not what the declarations give: go generate ./internal/config", file)
		}
	}
}

func TestSchema(t *testing.T) {
	var s map[string]any
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	entry := s
	for _, step := range []string{"properties", "capabilities", "additionalProperties"} {
		entry = entry[step].(map[string]any)
	}
	either := entry["anyOf"].([]any)
	if deny := either[1].(map[string]any); deny["const"] != "deny" {
		t.Errorf("NAME: deny is not in the schema: %v", deny)
	}
	entry = either[0].(map[string]any)["properties"].(map[string]any)
	for _, k := range capability.outline().Keys {
		if _, has := entry[k.Name]; has != (k.By != "") {
			t.Errorf("capability.%s: in the schema %v, enforced by %q", k.Name, has, k.By)
		}
	}
}
