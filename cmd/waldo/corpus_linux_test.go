package main

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/core/redact"
	"waldo/internal/model/display"
)

// Who judges each class of the corpus of MCP, or why nobody does.
var mcpJudges = map[string]string{
	"frame-json":      "internal/frontend/mcpserver TestCorpus",
	"rpc":             "internal/frontend/mcpserver TestCorpus",
	"frame-json-args": "internal/frontend/mcpserver TestCorpus",
	"rug-pull":        "internal/executor/upstream TestRugPullCorpus, the rows with a schema",
	"rpc-sequence":    "internal/executor/upstream TestSequencesCorpus",
	"terminal":        "TestCorpusOfTerminals, beside this",
}

var mcpNotJudged = map[string]string{
	"result-injection": "words that ask a model for something: waldo gives them no authority and does not look for them",
	"text-injection":   "the same in plain text",
	"text-benign":      "the control of text-injection",
	"result-benign":    "the control of result-injection",
	"poisoned-tool":    "words in a definition; a definition is pinned, and its words are not judged",
	"lying-server":     "behaviour against its own words, which no test of a text can show",
	"tool-list":        "names of two servers; a test of the catalogue has cases of its own, and these rows are open",
	"http-transport":   "headers; tests of internal/gateway/web have cases of their own, and these rows are open",
	"result-content":   "kinds of content; tests of internal/executor/upstream have cases of their own, and these rows are open",
}

// laterCorpora are files that no test reads: about what waldo does not do yet, or open.
var laterCorpora = map[string]string{
	"commands.jsonl": "rules for commands", "commands_gtfobins.jsonl": "rules for commands", "paths.jsonl": "rules for paths",
	"sql.jsonl": "a gateway for SQL", "webhooks.jsonl": "calls by webhook", "codegen.jsonl": "generated code for tools",
	"exec_facts.jsonl": "facts of runs: no test reads it yet, those of internal/sandbox have cases of their own",
}

// readCorpora are files that tests of these rooms read.
var readCorpora = map[string]string{
	"approval.jsonl": "internal/core/approval", "audit.jsonl": "internal/core/audit", "egress.jsonl": "internal/network/egress",
	"mcp.jsonl": "below", "pii.jsonl": "internal/core/redact", "secrets.jsonl": "internal/core/redact",
}

type mcpRow struct {
	ID, Class string
	Input     struct{ Text string }
}

func mcpCorpus(t *testing.T) (rows []mcpRow) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "shared", "corpora", "mcp.jsonl"))
	if err != nil {
		t.Skip("the corpora are not here:", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r mcpRow
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil && r.Class == "terminal" {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	return rows
}

// TestCorporaAreAccountedFor: each file and each class of the corpora has who judges it, or why nobody does.
func TestCorporaAreAccountedFor(t *testing.T) {
	count := map[string]int{}
	for _, r := range mcpCorpus(t) {
		count[r.Class]++
	}
	judged, open := 0, 0
	for _, class := range slices.Sorted(maps.Keys(count)) {
		who, is := mcpJudges[class]
		why, not := mcpNotJudged[class]
		if is == not {
			t.Errorf("class %q has no entry, or two", class)
		}
		if is {
			judged += count[class]
		} else {
			open += count[class]
		}
		t.Logf("%4d %-17s %s%s", count[class], class, who, strings.Repeat("not judged: ", min(1, len(why)))+why)
	}
	t.Logf("%d rows are of judged classes, %d of classes that are not", judged, open)
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "shared", "corpora", "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no files")
	}
	for _, f := range files {
		name := filepath.Base(f)
		if (readCorpora[name] == "") == (laterCorpora[name] == "") {
			t.Errorf("%s has no entry, or two", name)
		}
		t.Logf("%s: %s%s", name, readCorpora[name], laterCorpora[name])
	}
}

// TestCorpusOfTerminals shows each text of the class as commands do, and to a model: neither can be misread.
func TestCorpusOfTerminals(t *testing.T) {
	live, n := 0, 0
	for _, r := range mcpCorpus(t) {
		if r.Class != "terminal" || r.Input.Text == "" {
			continue
		}
		n++
		if _, bad := misread(r.Input.Text); bad {
			live++
		}
		for how, shown := range map[string]string{"Line": string(display.Line(r.Input.Text)), "Lines": string(display.Lines(r.Input.Text)), "Clean": redact.Clean(r.Input.Text)} {
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
