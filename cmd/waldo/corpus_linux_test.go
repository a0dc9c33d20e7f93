package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/core/redact"
	"waldo/internal/model/display"
	"waldo/internal/testing/corpus"
)

// mcpJudges names the test that judges each class of the corpus of MCP.
var mcpJudges = map[string]string{
	"frame-json":      "internal/frontend/mcpserver TestCorpus",
	"rpc":             "internal/frontend/mcpserver TestCorpus",
	"frame-json-args": "internal/frontend/mcpserver TestCorpus",
	"rug-pull":        "internal/executor/upstream TestRugPullCorpus, the rows with a schema",
	"rpc-sequence":    "internal/executor/upstream TestSequencesCorpus",
	"poisoned-tool":   "cmd/waldo TestShownWhole: `waldo lock --show` shows every text of a definition, and marks none",
	"lying-server":    "cmd/waldo TestCorpusOfLyingServers, with an act of each class",
	"http-transport":  "cmd/waldo TestCorpusOfHTTP",
	"tool-list":       "cmd/waldo TestCorpusOfTools",
	"result-content":  "cmd/waldo TestCorpusOfResults",
	"terminal":        "cmd/waldo TestCorpusOfTerminals",
}

// mcpNotJudged gives the reason for each class that no test judges.
var mcpNotJudged = map[string]string{
	"result-injection": "words that ask a model for something: waldo gives them no authority and does not look for them",
	"text-injection":   "the same in plain text",
	"text-benign":      "the control of text-injection",
	"result-benign":    "the control of result-injection",
}

// otherJudges names the test that judges each class of the corpora beside that of MCP; "-": none, with the reason.
var otherJudges = map[string]map[string]string{
	"approval.jsonl": {
		"binding": "internal/core/approval TestCorpus", "display": "internal/core/approval TestCorpus",
		"lifecycle": "internal/core/approval TestCorpus", "rules": "internal/core/policy TestCorpusRules",
	},
	"audit.jsonl": {
		"mutate": "internal/core/audit TestCorpusMutate", "crash": "internal/core/audit TestCorpusCrash",
		"content":          "internal/core/audit TestCorpusContent",
		"merkle-inclusion": "-: proofs of a tree; the log is a chain", "merkle-consistency": "-: the same",
	},
	"webhooks.jsonl": {
		"github": "internal/feature/webhook TestCorpus", "stripe": "internal/feature/webhook TestCorpus",
		"slack": "internal/feature/webhook TestCorpus", "standard": "internal/feature/webhook TestCorpus",
		"replay": "internal/feature/webhook TestCorpus", "hmac-vector": "internal/feature/webhook TestCorpus",
		"outgoing": "internal/feature/webhook TestCorpusOut",
	},
	"exec_facts.jsonl": {
		"facts-py": "cmd/waldo TestCorpusOfFacts", "facts-js": "cmd/waldo TestCorpusOfFacts",
		"facts-sh": "cmd/waldo TestCorpusOfFacts",
	},
}

// readCorpora names the packages whose tests read a file, where no table above names its classes.
var readCorpora = map[string]string{
	"codegen.jsonl": "internal/feature/gen/codegen", "egress.jsonl": "internal/network/egress", "pii.jsonl": "internal/core/redact",
	"secrets.jsonl": "internal/core/redact", "commands.jsonl": "internal/executor/commands",
	"commands_gtfobins.jsonl": "internal/executor/commands", "sql.jsonl": "internal/feature/sql/postgres",
	"paths.jsonl": "internal/feature/files, internal/storage/workspace",
}

type mcpRow struct {
	ID    string
	Input struct{ Text string }
}

// TestCorporaAreAccountedFor: each file and each class of the corpora names the test that judges it, or the reason why
// none does. A test that is named exists.
func TestCorporaAreAccountedFor(t *testing.T) {
	judges := map[string]map[string]string{"mcp.jsonl": {}}
	maps.Copy(judges["mcp.jsonl"], mcpJudges)
	for class, why := range mcpNotJudged {
		judges["mcp.jsonl"][class] = "-: " + why
	}
	maps.Copy(judges, otherJudges)
	for _, classes := range judges {
		for class, who := range classes {
			namesTest(t, class, who)
		}
	}
	for _, name := range corpus.Files(t) {
		if (judges[name] != nil) == (readCorpora[name] != "") {
			t.Errorf("%s has no entry, or two", name)
		}
		if judges[name] == nil {
			t.Logf("%s: %s", name, readCorpora[name])
			continue
		}
		count := map[string]int{}
		for _, r := range corpus.Rows[struct{ Class string }](t, name) {
			count[r.Class]++
		}
		judged, open := 0, 0
		for _, class := range slices.Sorted(maps.Keys(count)) {
			who, ok := judges[name][class]
			switch {
			case !ok:
				t.Errorf("%s: class %q has no entry", name, class)
			case strings.HasPrefix(who, "-"):
				open += count[class]
			default:
				judged += count[class]
			}
			t.Logf("%4d %-18s %s", count[class], class, who)
		}
		for class := range judges[name] {
			if count[class] == 0 && corpus.Whole(t) {
				t.Errorf("%s has no class %q", name, class)
			}
		}
		t.Logf("%s: %d rows are judged, %d are not", name, judged, open)
	}
}

// namesTest checks that an entry begins with a package and a test of it, or with "-: " and a reason.
func namesTest(t *testing.T, class, who string) {
	t.Helper()
	if strings.HasPrefix(who, "-: ") {
		return
	}
	dir, name, _ := strings.Cut(who, " ")
	name = strings.TrimRight(strings.Fields(name + " x")[0], ",:;")
	files, _ := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(dir), "*_test.go"))
	for _, f := range files {
		if b, _ := os.ReadFile(f); strings.Contains(string(b), "func "+name+"(") {
			return
		}
	}
	t.Errorf("%s: there is no test %q in %s", class, name, dir)
}

// TestCorpusOfTerminals shows each text of the class as commands do, and to a model: neither can be misread.
func TestCorpusOfTerminals(t *testing.T) {
	live, n := 0, 0
	for _, r := range corpus.Rows[mcpRow](t, "mcp.jsonl", "terminal") {
		if r.Input.Text == "" {
			continue
		}
		n++
		if _, bad := misread(r.Input.Text); bad {
			live++
		}
		for how, shown := range map[string]string{
			"Line": string(display.Line(r.Input.Text)), "Lines": string(display.Lines(r.Input.Text)),
			"Clean": redact.Clean(r.Input.Text),
		} {
			if c, bad := misread(shown); bad {
				t.Errorf("%s: %s shows %U", r.ID, how, c)
			}
		}
	}
	if live < 20 {
		t.Errorf("control: %d of %d texts can be misread", live, n)
	}
	t.Logf("%d texts, %d of them live", n, live)
}
