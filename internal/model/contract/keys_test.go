package contract

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// inPlace wraps lines as the file would have them in each scope.
var inPlace = map[string]string{
	top:              "%",
	inServer:         "servers: {s: {command: [a], %}}",
	inSecret:         "secrets: {s: {%}}",
	inInject:         "secrets: {s: {from: \"env:S\", inject: {%}}}",
	inAuth:           "servers: {s: {url: 'https://h/', auth: {%}}}",
	inOAuth:          "servers: {s: {url: 'https://h/', auth: {oauth: {%}}}}",
	inServerRequests: "servers: {s: {command: [a], server_requests: {%}}}",
	inLimits:         "servers: {s: {command: [a], limits: {%}}}",
	inMounts:         "servers: {s: {command: [a], mounts: {%}}}",
	inMount:          "servers: {s: {command: [a], mounts: {/a: {%}}}}",
	inEntry:          "capabilities: {a: {%}}",
	inRun:            "capabilities: {a: {limits: {%}}}",
	inNetwork:        "capabilities: {a: {network: {%}}}",
	inTraffic:        "capabilities: {a: {network: {allow: [a.example.com], limits: {%}}}}",
	inPackages:       "capabilities: {a: {packages: {%}}}",
	inRegistry:       "capabilities: {a: {packages: {npm: {%}}}}",
	inApproval:       "capabilities: {a: {approval: {%}}}",
	inRule:           "capabilities: {a: {rules: [{%}]}}",
	inRetry:          "capabilities: {a: {retry: {%}}}",
	inRate:           "capabilities: {a: {rate_limit: {%}}}",
	inExample:        "capabilities: {a: {examples: [{%}]}}",
	inRedact:         "redaction: {%}",
	inAsk:            "approval: {%}",
	inGateway:        "gateway: {%}",
	inEntrance:       "gateway: {auth: {%}}",
	inDoor:           "gateway: {limits: {%}}",
	inIssuer:         "gateway: {auth: {oidc: {%}}}",
	inStore:          "store: {%}",
	inLog:            "log: {%}",
	inBoxes:          "sandboxes: {%}",
}

func at(scope, line string) []byte {
	return []byte(strings.Replace(inPlace[scope], "%", line, 1) + "\n")
}

// Every key of the table is read, by its type: a value of another type is refused, a key that no
// room enforces is refused, and a key beside it that does not exist is refused.
func TestEveryKeyIsRead(t *testing.T) {
	for _, k := range keys {
		name := k.Scope + "." + k.Name
		_, problems := Parse("w", at(k.Scope, k.Name+": [{}]"))
		switch {
		case k.By == "":
			if !problems.Has("key.not_enforced") {
				t.Errorf("%s: not enforced, and taken: %v", name, problems)
			}
		case problems.Has("key.unknown"):
			t.Errorf("%s: in the table, unknown to the parser", name)
		case len(problems) == 0:
			t.Errorf("%s: a list of a mapping was taken for %s", name, k.Type)
		}
		if _, problems := Parse("w", at(k.Scope, k.Name+"x: 1")); k.Name != anyPath && !problems.Has("key.unknown") {
			t.Errorf("%sx: taken: %v", name, problems)
		}
		for _, w := range k.Later {
			if _, problems := Parse("w", at(k.Scope, k.Name+": "+w)); !problems.Has("key.not_enforced") {
				t.Errorf("%s: %s: for a later build, and taken: %v", name, w, problems)
			}
		}
		for _, w := range k.Words {
			value := w
			if k.Type == "words" {
				value = "[" + w + "]"
			}
			if strings.HasPrefix(k.Type, "word|words") {
				value = "[" + w + "]"
			}
			_, problems := Parse("w", at(k.Scope, k.Name+": "+value))
			if problems.Has("value.unknown") || problems.Has("value.type") || problems.Has("key.not_enforced") {
				t.Errorf("%s: %s: in the table, and refused: %v", name, w, problems)
			}
		}
	}
}

// TestEnforcers: the package in each key's enforcer column exists.
func TestEnforcers(t *testing.T) {
	for _, k := range keys {
		if k.By == "" {
			continue
		}
		if files, _ := filepath.Glob(filepath.Join("..", "..", "..", k.By, "*.go")); !strings.HasPrefix(k.By, "internal/") || len(files) == 0 {
			t.Errorf("%s.%s: %q is not a package", k.Scope, k.Name, k.By)
		}
	}
}

// docs/contract.md lists every key with its default, says which are not enforced, and names every
// code of a problem.
func TestTheDocumentHasEveryKey(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "contract.md"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(row(k))
	}
	for _, line := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		if !strings.Contains(string(doc), line+"\n") {
			t.Errorf("docs/contract.md lacks:\n%s", line)
		}
	}
	for _, line := range strings.Split(string(doc), "\n") {
		if strings.HasPrefix(line, "| `") && strings.Count(line, " | ") == 4 && !strings.Contains(b.String(), line+"\n") {
			t.Errorf("docs/contract.md has a key that is not in the table:\n%s", line)
		}
	}
	code := regexp.MustCompile(`"((?:file|yaml|key|value|secret|server|role|transport|network|danger|retry|rule|example|approval|listen|config)\.[a-z_0-9]+)"`)
	sources, _ := filepath.Glob("*.go")
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

// row is the line of docs/contract.md for a key.
func row(k Key) string {
	words := strings.ReplaceAll(k.Type, "|", " or ")
	if len(k.Words) > 0 {
		words += ": " + strings.Join(k.Words, ", ")
	}
	if len(k.Later) > 0 {
		words += "; not enforced: " + strings.Join(k.Later, ", ")
	}
	by := k.By
	if by == "" {
		by = "**not enforced**"
	}
	def := k.Default
	if def == "" {
		def = "needed"
	}
	name := k.Name
	if k.Scope != top {
		name = k.Scope + "." + k.Name
	}
	return "| `" + name + "` | " + words + " | " + def + " | " + k.Doc + " | " + by + " |\n"
}

func TestSchemaIsTheTable(t *testing.T) {
	file := filepath.Join("..", "..", "..", "schema", "waldo.schema.json")
	if os.Getenv("WALDO_UPDATE") != "" {
		if err := os.WriteFile(file, Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, Schema()) {
		t.Error("schema/waldo.schema.json is not what the table of keys gives: WALDO_UPDATE=1 go test ./internal/model/contract")
	}
	var s map[string]any
	if err := json.Unmarshal(kept, &s); err != nil {
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
	for _, k := range keys {
		if k.Scope != inEntry {
			continue
		}
		if _, has := entry[k.Name]; has != (k.By != "") {
			t.Errorf("capability.%s: in the schema %v, enforced by %q", k.Name, has, k.By)
		}
	}
}

func TestClosest(t *testing.T) {
	for _, row := range []struct{ typed, want, why string }{
		{"tansport", "transport", "a letter dropped"},
		{"netwrok", "network", "two letters changed places"},
		{"Mode", "mode", "letter case"},
		{"zzzzzz", "", "nothing near"},
		{"timeout", "timeout_seconds", "a beginning"},
	} {
		got := closest(row.typed, namesOf(inEntry))
		if got != row.want {
			t.Errorf("%s: %q: %q, want %q", row.why, row.typed, got, row.want)
		}
	}
	if !slices.Contains(namesOf(inEntry), "transport") {
		t.Error("the table has no transport")
	}
}
