package agentrun_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/app"
	"waldo/internal/app/configfile"
	"waldo/internal/feature/agent/agentrun"
	"waldo/internal/feature/agent/loop"
	"waldo/internal/testing/providertest"
)

const modelKey = "sk-live-9fQ2mZ7xLw4Tk8Rb"

// TestKeyInAnswer: a provider sends its key back in a call. The call is not made, and the key is nowhere. The control
// is the same call with another text.
func TestKeyInAnswer(t *testing.T) {
	escaped := ""
	for _, c := range modelKey {
		escaped += fmt.Sprintf(`\u%04x`, c)
	}
	invisible := modelKey[:9] + `\u200b` + modelKey[9:]
	for name, x := range map[string]struct{ tool, input, held string }{
		"plain":     {"github__add_comment", `{"body":"KEY"}`, modelKey},
		"escaped":   {"github__add_comment", `{"body":"x KEY x"}`, escaped},
		"one":       {"github__add_comment", `{"body":"KEY"}`, `\u0073` + modelKey[1:]},
		"invisible": {"github__add_comment", `{"body":"KEY"}`, invisible},
		"member":    {"github__add_comment", `{"KEY":[1]}`, modelKey},
		"deep":      {"github__add_comment", `{"a":[{"b":"KEY"}]}`, escaped},
		"base64":    {"github__add_comment", `{"body":"KEY"}`, base64.StdEncoding.EncodeToString([]byte("the key " + modelKey + " is it"))},
		"hex":       {"github__add_comment", `{"body":"KEY"}`, hex.EncodeToString([]byte(modelKey))},
		"twice":     {"github__add_comment", `{"KEY":1,"KEY":2}`, modelKey},
		"name":      {"github__KEY", `{}`, modelKey},
	} {
		for _, kind := range []string{"anthropic", "openai", "ollama"} {
			if kind == "ollama" && name == "twice" {
				continue // the whole answer is refused: its arguments are JSON, and not a text
			}
			t.Run(name+" "+kind, func(t *testing.T) {
				call := func(held string) providertest.Turn {
					return providertest.Turn{Text: "I call", Calls: []providertest.Call{{
						Tool: strings.ReplaceAll(x.tool, "KEY", held), Input: strings.ReplaceAll(x.input, "KEY", held)}}}
				}
				effects, results, _ := tell(t, kind, 3, call("harmless"), "harmless")
				if made := name != "name" && name != "twice"; made != (effects == 1) {
					t.Errorf("control: %d effects, %q", effects, results)
				}
				effects, results, seen := tell(t, kind, 3, call(x.held), x.held)
				if effects != 0 || len(results) != 1 || !strings.Contains(results[0], "not called: it held the key of a provider") {
					t.Errorf("%d effects, %q", effects, results)
				}
				if strings.Contains(seen, modelKey) || strings.Contains(seen, x.held) {
					t.Errorf("the key is in %s", seen)
				}
			})
		}
	}
}

// TestKeyInParts: the id of a call and two texts of one answer do not bring the key either.
func TestKeyInParts(t *testing.T) {
	id := strings.ReplaceAll(providertest.Render("anthropic", providertest.Turn{Calls: []providertest.Call{
		{Tool: "github__add_comment", Input: `{"number":7}`}}}), "toolu_0", "KEY")
	texts := providertest.Render("anthropic", providertest.Turn{Text: "x"})
	head, tail, _ := strings.Cut(texts, "event: content_block_start")
	_, tail, _ = strings.Cut(tail, "event: message_delta")
	block := func(i int, s string) string {
		return fmt.Sprintf("data: {\"type\":\"content_block_start\",\"index\":%d,\"content_block\":{\"type\":\"text\",\"text\":%q}}\n\n"+
			"data: {\"type\":\"content_block_stop\",\"index\":%d}\n\n", i, s, i)
	}
	split := func(key string) string {
		return head + block(0, "a "+key[:11]) + block(1, key[11:]+" b") + "event: message_delta" + tail
	}
	const other = "pk-mild-1aB2cD3eF4gH5iJ6"
	if _, _, seen := tell(t, "anthropic", 0, providertest.Turn{Raw: split(other)}, other); !strings.Contains(seen, other) {
		t.Errorf("control: %s", seen)
	}
	if _, _, seen := tell(t, "anthropic", 0, providertest.Turn{Raw: split(modelKey)}, modelKey); strings.Contains(seen, modelKey) ||
		!strings.Contains(seen, "a [SECRET] b") {
		t.Errorf("the key is in %s", seen)
	}
	effects, _, seen := tell(t, "anthropic", 0, providertest.Turn{Raw: strings.ReplaceAll(id, "KEY", modelKey)}, modelKey)
	if effects != 1 || strings.Contains(seen, modelKey) {
		t.Errorf("%d effects, %s", effects, seen)
	}
}

// tell runs an agent whose model answers once with a turn. seen is all that the state directory, the events, the
// outcome and the tool's server got. The parts of the text that come in are left to the terminal.
func tell(t *testing.T, kind string, chunk int, turn providertest.Turn, held string) (effects int, results []string, seen string) {
	t.Helper()
	t.Setenv("MODEL_KEY", modelKey)
	world := &outside{text: "nothing"}
	web := httptest.NewServer(world)
	defer web.Close()
	model := &providertest.Server{Chunk: chunk, Script: func(a providertest.Ask) providertest.Turn {
		if a.Key != modelKey {
			t.Errorf("the provider got the key %q", a.Key)
		}
		for _, r := range a.Results {
			results = append(results, r.Text)
		}
		if a.Answers == 0 {
			return turn
		}
		return providertest.Turn{Text: "done"}
	}}
	llm := httptest.NewServer(model)
	defer llm.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "waldo.yaml")
	text := "version: 1\nsecrets: {llm: {from: \"env:MODEL_KEY\"}}\nservers: {github: {url: \"" + web.URL + "/mcp\"}}\n" +
		"capabilities: {github.*: {mode: write, approval: none}}\n" +
		"agent: {providers: [{kind: " + kind + ", url: \"" + llm.URL + "\", model: m, key: llm}]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	h, err := app.New(t.Context(), app.Options{State: state, Source: configfile.Source{Config: file}, Tells: true})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var all strings.Builder
	r, err := agentrun.New(h).Start("do it", loop.Channel, agentrun.Options{Watch: func(e loop.Event) {
		if e.Event != "text" {
			fmt.Fprintf(&all, "%s %s %s %s\n", e.Event, e.Text, e.Tool, e.Input)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.Go(t.Context())
	if err != nil || out.End != loop.Done {
		t.Errorf("%+v: %v, %v", out, err, model.Faults())
	}
	fmt.Fprintf(&all, "%+v\n%v\n%v\n", out, world.effects, results)
	for name, content := range tree(t, state) {
		if strings.Contains(content, held) || strings.Contains(content, modelKey) {
			fmt.Fprintf(&all, "%s: %s\n", name, content)
		}
	}
	return len(world.effects), results, all.String()
}
