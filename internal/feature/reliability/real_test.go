//go:build unix

package reliability

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/wellknown"
	"waldo/internal/testing/repo"
)

// between stands between waldo and a server, and ends once, before or after the server has answered the call of a tool.
func between(at, tool, marker string, command []string) {
	c := exec.Command(command[0], command[1:]...)
	in, err := c.StdinPipe()
	if err != nil {
		os.Exit(1)
	}
	out, err := c.StdoutPipe()
	if err != nil || c.Start() != nil {
		os.Exit(1)
	}
	answers := bufio.NewScanner(out)
	answers.Buffer(nil, 1<<22)
	ends := make(chan string, 1)
	go func() {
		for answers.Scan() {
			select {
			case id := <-ends:
				if strings.Contains(answers.Text(), `"id":`+id) {
					_ = c.Process.Kill()
					os.Exit(1)
				}
				ends <- id
			default:
			}
			fmt.Println(answers.Text())
		}
		os.Exit(1)
	}()
	asked := bufio.NewScanner(os.Stdin)
	asked.Buffer(nil, 1<<22)
	for asked.Scan() {
		var m struct {
			ID     json.RawMessage
			Params struct{ Name string }
		}
		_ = json.Unmarshal(asked.Bytes(), &m)
		if _, err := os.Stat(marker); m.Params.Name == tool && err != nil {
			_ = os.WriteFile(marker, nil, 0o600)
			if at == "before" {
				_ = c.Process.Kill()
				os.Exit(1)
			}
			ends <- string(m.ID)
		}
		_, _ = fmt.Fprintln(in, asked.Text())
	}
	_ = in.Close()
	_ = c.Wait()
}

// Writes of real servers are settled by the reads that the catalogue of waldo import proposes, after the server died
// before or after the write. A folder that is absent cannot be read, so its write stays unknown.
func TestSettleRealServers(t *testing.T) {
	node, packages := repo.Packages(t, "npm", "@modelcontextprotocol/server-memory", "@modelcontextprotocol/server-filesystem")
	for _, row := range []struct {
		server, write, args string
		before              call.Settled
	}{
		{"memory", "create_entities", `{"entities":[{"name":"Ada","entityType":"person","observations":["counts"]}]}`, call.NotHappened},
		{"memory", "create_relations", `{"relations":[{"from":"Old","to":"Old","relationType":"knows"}]}`, call.NotHappened},
		{"memory", "delete_entities", `{"entityNames":["Old"]}`, call.NotHappened},
		{"memory", "add_observations", `{"observations":[{"entityName":"Old","contents":["new"]}]}`, call.NotHappened},
		{"memory", "delete_observations", `{"deletions":[{"entityName":"Old","observations":["known"]}]}`, call.NotHappened},
		{"memory", "delete_relations", `{"relations":[{"from":"Old","to":"Old","relationType":"is"}]}`, call.NotHappened},
		{"filesystem", "write_file", `{"path":"FOLDER/old.txt","content":"new"}`, call.NotHappened},
		{"filesystem", "write_file", `{"path":"FOLDER/new.txt","content":"new"}`, call.StillUnknown},
		{"filesystem", "create_directory", `{"path":"FOLDER/notes"}`, call.StillUnknown},
	} {
		known, ok := wellknown.Find([]string{"npx", "@modelcontextprotocol/server-" + row.server})
		if !ok || known.Settle[row.write].By == "" {
			t.Fatalf("the catalogue proposes no settlement of %s", row.write)
		}
		for at, want := range map[string]call.Settled{"before": row.before, "after": call.Happened} {
			t.Run(row.write+" "+at, func(t *testing.T) {
				b := newBench(t, "")
				files := b.real(t, node, filepath.Join(packages, "@modelcontextprotocol", "server-"+row.server, "dist", "index.js"),
					at, row.write, known.Settle[row.write])
				var args map[string]any
				if err := json.Unmarshal([]byte(strings.ReplaceAll(row.args, "FOLDER", files)), &args); err != nil {
					t.Fatal(err)
				}
				h := b.waldo(t)
				o := ordered{Capability: "r." + row.write, Key: "k", Args: args}
				r := o.must(t, h)
				if r.Settled != want || r.Status == facts.OK {
					t.Fatalf("settled %q, want %q: %s%s", r.Settled, want, r.Status, codes(r))
				}
				r = o.must(t, h)
				if want == call.StillUnknown {
					if first(r) != "idempotency.unknown" {
						t.Errorf("the same call again: %s%s", r.Status, codes(r))
					}
				} else if r.Status != facts.OK || (r.Replayed != "") != (want == call.Happened) {
					t.Errorf("the same call again: %s, replay of %q%s", r.Status, r.Replayed, codes(r))
				}
			})
		}
	}
}

// A commit of a real git server is settled by its log, after the server died before or after it. An equal commit of
// before is another one.
func TestSettleRealGit(t *testing.T) {
	node, packages := repo.Packages(t, "npm-git", "@cyanheads/git-mcp-server")
	known, ok := wellknown.Find([]string{"npx", "@cyanheads/git-mcp-server"})
	if !ok {
		t.Fatal("the catalogue has no git server")
	}
	for at, want := range map[string]call.Settled{"before": call.NotHappened, "after": call.Happened} {
		b := newBench(t, "")
		dir := b.real(t, node, filepath.Join(packages, "@cyanheads", "git-mcp-server", "dist", "index.js"), at, "git_commit",
			known.Settle["git_commit"])
		git := func(args ...string) string {
			out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %v %s", args, err, out)
			}
			return string(out)
		}
		git("init", "-q")
		git("config", "user.name", "a")
		git("config", "user.email", "a@example.com")
		git("commit", "-q", "--allow-empty", "-m", "mend it")
		time.Sleep(2 * time.Second) // git counts seconds
		h := b.waldo(t)
		o := ordered{Capability: "r.git_commit", Key: "k", Args: map[string]any{"path": dir, "message": "mend it", "allowEmpty": true}}
		if r := o.must(t, h); r.Settled != want {
			t.Errorf("%s: settled %q: %s%s %v", at, r.Settled, r.Status, codes(r), r.Content)
		}
		if r := o.must(t, h); r.Status != facts.OK || (r.Replayed != "") != (want == call.Happened) {
			t.Errorf("%s: again: %s%s", at, r.Status, codes(r))
		}
		if n := strings.Count(git("log", "--format=%s"), "mend it"); n != 2 {
			t.Errorf("%s: %d commits, one of before", at, n)
		}
	}
}

// Each proposed settlement loads, and tells a write of its server that happened from one that did not. The results are
// as the servers of the versions in the catalogue write them.
func TestProposals_load(t *testing.T) {
	began := time.Date(2026, 11, 27, 12, 0, 0, 5e8, time.UTC) // 1795780800
	samples := map[string]struct{ args, happened, not string }{
		"create_issue": {`{"owner":"o","repo":"r","title":"T","body":"B"}`, `[{"title":"T","body":"B"}]`,
			`[{"title":"T","body":null},{"title":"t","body":"B"}]`},
		"create_pull_request": {`{"owner":"o","repo":"r","title":"T","head":"h","base":"main"}`,
			`[{"title":"T","head":{"ref":"h"},"base":{"ref":"main"}}]`, `[{"title":"T","head":{"ref":"x"},"base":{"ref":"main"}}]`},
		"create_or_update_file": {`{"owner":"o","repo":"r","project_id":"p","path":"a","file_path":"a","branch":"b","content":"new"}`,
			`{"content":"new"}`, `{"content":"old"}`},
		"slack_post_message": {`{"channel_id":"C1","text":"hi"}`, `{"ok":true,"messages":[{"subtype":"x"},{"text":"hi","ts":"1795780800.000100"}]}`,
			`{"ok":true,"messages":[{"text":"hi","ts":"1795780799.900000"},{"text":"ho","ts":"1795780801.000000"}]}`},
		"slack_reply_to_thread": {`{"channel_id":"C1","thread_ts":"1.000000","text":"hi"}`,
			`{"ok":true,"messages":[{"text":"hi","ts":"1795780801.000100"}]}`, `{"ok":false,"error":"ratelimited"}`},
		"git_create_branch": {`{"repo_path":"/r","branch_name":"new"}`, "* main\n  new", "* main\n  new-er"},
		"git_checkout":      {`{"repo_path":"/r","branch_name":"new"}`, "  main\n* new", "* main\n  new"},
		"mcp-server-git git_commit": {`{"repo_path":"/r","message":"fix a"}`,
			"Commit history:\nCommit: 1\nAuthor: a\nDate: d\nMessage: fix b\n\nCommit: \nAuthor: 2\nDate: a\nMessage: d\n\nCommit: fix a\nAuthor: ",
			"Commit history:\nCommit: 1\nAuthor: a\nDate: d\nMessage: fix a too\n"},
	}
	// What Slack makes of a text can differ from it, so a message that is not seen can have been sent.
	never := []string{"slack_post_message", "slack_reply_to_thread"}
	judged := 0
	for _, row := range wellknown.All() {
		for name, s := range row.Settle {
			b := newBench(t, "")
			b.real(t, "node", row.Match[0], "before", name, s)
			b.waldo(t)
			sample, ok := samples[name]
			if !ok {
				sample, ok = samples[row.Match[0]+" "+name]
			}
			if !ok {
				continue // TestSettleRealServers or TestSettleRealGit has it
			}
			judged++
			args, err := call.ParseArgs([]byte(sample.args))
			if err != nil {
				t.Fatal(err)
			}
			template := map[string]any{}
			for k, v := range s.Args {
				template[k] = v
			}
			if _, err := policy.Fill(template, args, began, nil); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for text, want := range map[string]bool{sample.happened: true, sample.not: false} {
				r := call.Result{Content: []call.Content{call.Text(text)}}
				got, err := policy.Happened(contract.Settle{Happened: s.Happened}, args, began, r)
				if got != want || (err != nil) != (!want && slices.Contains(never, name)) {
					t.Errorf("%s of %s: %v %v", name, text, got, err)
				}
			}
		}
	}
	if judged != 9 {
		t.Errorf("%d settlements were judged by samples", judged)
	}
	b := newBench(t, "")
	b.real(t, "node", "x", "before", "w", wellknown.Settle{By: "r", Happened: "nothing.known"})
	if _, err := b.open(t.Context()); err == nil || !strings.Contains(err.Error(), "settle.invalid") {
		t.Errorf("control: a malformed settlement loads: %v", err)
	}
}

// real writes a configuration with a real server that dies before or after its first write, and returns its folder. The
// memory server knows one entity, Old.
func (b bench) real(t *testing.T, node, program, at, write string, s wellknown.Settle) (folder string) {
	t.Helper()
	folder = filepath.Join(b.dir, "files")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := []string{me, "between", at, write, filepath.Join(b.dir, "marker"), node, program, folder}
	settle := map[string]any{"by": "r." + s.By, "happened": s.Happened, "within": "1s"}
	if s.Args != nil {
		settle["args"] = s.Args
	}
	env := map[string]any{}
	if strings.Contains(program, "server-memory") {
		env["MEMORY_FILE_PATH"] = folder + "/memory.jsonl"
	}
	text, err := json.Marshal(map[string]any{
		"version": 1,
		"servers": map[string]any{"r": map[string]any{"command": command, "placement": "outside",
			"env": env}},
		"capabilities": map[string]any{
			"r." + s.By:  map[string]any{"mode": "read", "approval": "none"},
			"r." + write: map[string]any{"mode": "high_risk", "danger": 3, "approval": "none", "settle": settle},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	old := `{"type":"entity","name":"Old","entityType":"person","observations":["known"]}` + "\n" +
		`{"type":"relation","from":"Old","to":"Old","relationType":"is"}` + "\n"
	for name, content := range map[string]string{filepath.Join(folder, "memory.jsonl"): old,
		filepath.Join(folder, "old.txt"): "old", filepath.Join(b.dir, "waldo.yaml"): string(text)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}
