package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/testing/corpus"
)

// sequences are the out-of-turn messages of servers, by the scripts of the shared corpus. Each names the server's
// acts around one call, and how that call and the next one end.
var sequences = map[string]struct {
	before string                                // written before anything is read
	call   func(r request, out io.Writer) string // in answer to a call of "odd"; "" answers nothing
	status facts.Status                          // of the call
	text   string                                // in its answer
	over   bool                                  // the server is over then
	brief  bool                                  // the call's time ends it, and is short
}{
	"call upstream_answers upstream_answers_again": {call: func(r request, out io.Writer) string {
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"first"}]}}`+"\n", r.ID)
		return `{"content":[{"type":"text","text":"second"}]}`
	}, status: facts.OK, text: "first"},
	"call upstream_answers_wrong_id": {call: func(r request, out io.Writer) string {
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s7,"result":%s}`+"\n", r.ID, fine)
		return ""
	}, status: facts.Timeout, text: "no answer in time", brief: true},
	"upstream_answers_id_1 call_id_1": {call: func(r request, out io.Writer) string {
		var id int
		_ = json.Unmarshal(r.ID, &id)
		for ahead := range 20 { // read before the answer of this call, so before the next one is made
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"early"}]}}`+"\n", id+1+ahead)
		}
		return fine
	}, status: facts.OK, text: "fine"},
	"call upstream_half_line_and_exit": {call: func(r request, out io.Writer) string {
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"resu`, r.ID)
		return "exit"
	}, status: facts.Failed, text: "the server ended before it answered; whether it took effect is not known", over: true},
	"upstream_stdout:hello world call": {before: "hello world\n", call: func(request, io.Writer) string { return fine },
		status: facts.OK, text: "fine"},
	"upstream_garbage:100MB": {call: func(_ request, out io.Writer) string {
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		for range 100 {
			if _, err := out.Write(chunk); err != nil {
				break
			}
		}
		return ""
	}, status: facts.Failed, text: "whether it took effect is not known", over: true},
	"upstream_notifications:100000": {call: func(_ request, out io.Writer) string {
		_, _ = io.WriteString(out,
			strings.Repeat(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`+"\n",
				100_000))
		return fine
	}, status: facts.OK, text: "fine"},
	"upstream_list_changed:10000": {call: func(_ request, out io.Writer) string {
		_, _ = io.WriteString(out,
			strings.Repeat(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`+"\n", 10_000))
		return fine
	}, status: facts.OK, text: "fine"},
	"call upstream_answers upstream_progress": {call: func(r request, out io.Writer) string {
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, fine)
		fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":99}}`+
			"\n", r.ID)
		return ""
	}, status: facts.OK, text: "fine"},
	"cross_token": {call: func(_ request, out io.Writer) string {
		for id := range 50 {
			fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":99}}`+
				"\n", id+1000)
		}
		return fine
	}, status: facts.OK, text: "fine"},
	"upstream_sampling": {call: wanting("sampling/createMessage"), status: facts.OK, text: "refused -32601"},
	"upstream_roots":    {call: wanting("roots/list"), status: facts.OK, text: "refused -32601"},
	"upstream_request_id_collision": {call: func(r request, out io.Writer) string {
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"method":"ping"}`+"\n", r.ID)
		return fine
	}, status: facts.OK, text: "fine"},
}

// wanting asks the client for something, and answers with the code of its refusal.
func wanting(method string) func(request, io.Writer) string {
	return func(_ request, out io.Writer) string {
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":"q","method":%q,"params":{}}`+"\n", method)
		return "refusal"
	}
}

// odd is a legacy server that behaves as a sequence says.
func odd(before string, answer func(request, io.Writer) string) func(*bufio.Scanner, io.Writer) {
	return func(in *bufio.Scanner, out io.Writer) {
		_, _ = io.WriteString(out, before)
		var waiting json.RawMessage
		for in.Scan() {
			var r struct {
				request
				Error *struct{ Code int }
			}
			if json.Unmarshal(in.Bytes(), &r) != nil || r.ID == nil {
				continue
			}
			result := ""
			switch {
			case r.Error != nil && waiting != nil:
				r.ID, result = waiting, fmt.Sprintf(`{"content":[{"type":"text","text":"refused %d"}]}`, r.Error.Code)
			case r.Method == "initialize":
				result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"odd","version":"1"}}`
			case r.Method == "tools/list":
				result = `{"tools":[{"name":"odd","inputSchema":{}},{"name":"even","inputSchema":{}}]}`
			case r.Method == "tools/call" && r.Params.Name == "even":
				result = fine
			case r.Method == "tools/call":
				switch result = answer(r.request, out); result {
				case "exit":
					return
				case "":
					continue
				case "refusal":
					waiting = r.ID
					continue
				}
			case r.Method == "":
				continue
			default:
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", r.ID)
				continue
			}
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, result)
		}
	}
}

// If a server sends messages out of turn, its call ends as it should. The next call gets its own answer, and so does
// a call of another server.
func TestSequences(t *testing.T) {
	for script, row := range sequences {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			var changed atomic.Int64
			f := launchers(map[string]func(*bufio.Scanner, io.Writer){
				"s": odd(row.before, row.call), "good": legacy(echoTool, answers(fine)),
			})
			m := manager(t, f, Options{Watcher: toolCount{n: &changed}})
			steps := atomic.Int64{}
			ctx := call.WithProgress(context.Background(), func(float64, float64, string) { steps.Add(1) })
			ended := make(chan struct{})
			patience := 60 * time.Second // 100,000 messages are seconds of work where races are looked for
			if row.brief {
				patience = 2 * time.Second
			}
			go func() {
				defer close(ended)
				o := execute(t, ctx, m, decision(t, "s.odd", `{}`, contract.Contract{Mode: contract.Write, Timeout: patience}))
				if o.Facts.Status != row.status || !strings.Contains(text(o), row.text) {
					t.Errorf("got %s %q", o.Facts.Status, text(o))
				}
			}()
			for done := false; !done; {
				if o := execute(t, context.Background(), m,
					decision(t, "good.echo", `{}`, contract.Contract{})); text(o) != "fine" {
					t.Errorf("the server beside it: %q", text(o))
				}
				select {
				case <-ended:
					done = true
				case <-time.After(20 * time.Millisecond):
				}
			}
			if o := execute(t, context.Background(), m, decision(t, "s.even", `{}`, contract.Contract{})); text(o) != "fine" {
				t.Errorf("the next call: %q", text(o))
			}
			if n := f.starts["s"].Load(); (n > 1) != row.over {
				t.Errorf("started %d times", n)
			}
			if steps.Load() != 0 {
				t.Errorf("%d steps of progress that were not its own", steps.Load())
			}
		})
	}
}

type scriptRow struct {
	ID    string
	Input struct{ Script []string }
}

// Each script of the corpus that is a server's is among ours, or is a client's.
func TestSequencesCorpus(t *testing.T) {
	elsewhere := map[string]string{"": "two clients: the gateway's",
		"call cancel upstream_answers_late": "TestTimeoutAndCancellation",
		"client_flood_no_read:10000":        "the gateway's", "client_half_frame_close": "the gateway's"}
	ran := 0
	for _, row := range corpus.Rows[scriptRow](t, "mcp.jsonl", "rpc-sequence") {
		ran++
		script := strings.Join(row.Input.Script, " ")
		if _, ours := sequences[script]; !ours && elsewhere[script] == "" {
			t.Errorf("%s: %q is judged nowhere", row.ID, script)
		}
	}
	if ran < 17 {
		t.Errorf("only %d rows were found", ran)
	}
}
